"""Ask, decide, record: the command side. Begin with `appender.py`."""
