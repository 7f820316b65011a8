"""Whole numbers that a path or a query names."""

from __future__ import annotations

from gateway.faults import Fault
from gateway.request import Query

LARGEST = 2**63 - 1  # of what a view holds


def whole_id(text: str, name: str) -> int:
    """Raises:
    Fault: 400, it is not a number.
    """
    try:
        return max(-1, min(int(text[:40]), LARGEST))
    except ValueError:
        raise Fault(400, f"Invalid input received: {name} must be an integer") from None


def page_limit(query: Query, most: int) -> int:
    """How many rows a page has: as many as it may, where the query says nothing or 0."""
    asked = query.get("limit")
    return min(int(asked[:12]), most) if asked and asked.isdigit() and int(asked[:12]) else most
