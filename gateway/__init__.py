"""The HTTP faces."""
