"""What can happen to compute instances, and the rules: pure, standard library only. Begin with `instance/events.py`."""
