"""The driver over libvirt: QEMU and KVM guests, and libvirt's own test driver, through the same code."""
