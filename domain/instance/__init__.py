"""One instance: its events, its state, and which request is allowed from which state."""
