"""JSON schemas of request bodies and queries, by operation and microversion. `gateway/bodies.py` applies them."""
