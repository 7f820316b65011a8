"""Ports to the services beside the ledger, and their adapters: `standalone/` serves them itself."""
