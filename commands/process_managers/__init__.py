"""Process managers: each reacts to events with commands or orders. Every step is an event; every command's id is derived
from what it answers, so that a step taken twice is taken once.
"""
