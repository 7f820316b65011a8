"""All hosts as numpy columns, and the choice among them. The rules themselves are in `domain/scheduling/`."""
