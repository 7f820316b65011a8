"""Fixtures that every test may ask for."""

from tests.support.hypervisors import guest_images, libvirtd

__all__ = ["guest_images", "libvirtd"]
