"""The read side: rows folded from events, that can be dropped and rebuilt. Begin with `views.py`."""
