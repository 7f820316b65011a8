"""What is counted, for Prometheus. Each name is written out here once; who counts imports it."""

from __future__ import annotations

from prometheus_client import Counter

REPORTS = Counter("compute_ledger_reports_total", "Reports of hosts that were recorded.", ["kind"])
REPORTS_REFUSED = Counter(
    "compute_ledger_reports_refused_total", "Reports and heartbeats of hosts that were not taken.", ["reason"]
)
AGENT_REQUESTS_REFUSED = Counter(
    "compute_ledger_agent_requests_refused_total", "Requests of hosts for payloads and images, refused.", ["reason"]
)
AGENT_ORDERS_REFUSED = Counter(
    "compute_ledger_agent_orders_refused_total", "Orders that this host's agent did not take.", ["reason"]
)
