"""Commands on instances, each beside its decision; what hosts report is decided in `outcome.py`."""
