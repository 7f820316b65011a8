"""One process a host: it hears what the host is wanted to hold, makes it so, and reports. Begin with `agent.py`."""
