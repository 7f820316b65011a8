"""Hypervisor drivers behind one protocol (`protocol.py`), each held to `tests/contracts/test_driver.py`."""
