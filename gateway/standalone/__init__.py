"""Minimal Keystone v3, Glance v2 and Neutron v2.0, so that an unmodified client needs one URL.

Logged in (`keystone.py`), it finds the others in the catalog (`catalog.py`): `glance.py`, `neutron.py`.
"""
