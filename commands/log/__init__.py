"""The log: how events, orders, reports and answers get from one role to another. `port.py` says what it promises."""
