"""What is counted, for Prometheus. Each name is written out here once; who counts imports it.

What is not counted but looked at when it is asked for, like how far a consumer is behind, is in `gateway/metrics.py`.
"""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

# the appender

COMMITS = Counter("compute_ledger_commits_total", "Transactions that this process's appender has committed.")
FLUSH_COMMANDS = Histogram(
    "compute_ledger_flush_commands",
    "Commands that were decided in one committed transaction.",
    buckets=(1, 2, 5, 10, 20, 50, 100, 200, 500, 1000),
)
COMMANDS_RECORDED = Counter("compute_ledger_commands_recorded_total", "Commands that were accepted and recorded.")
COMMANDS_REFUSED = Counter("compute_ledger_commands_refused_total", "Commands that were refused.", ["code"])
FLUSHES_UNAVAILABLE = Counter(
    "compute_ledger_flushes_unavailable_total", "Transactions that failed, or whose end is not known."
)

# consumers

EVENTS_HANDLED = Counter(
    "compute_ledger_events_handled_total", "Events (of the inbox: reports) that a consumer is done with.", ["consumer"]
)
EVENT_AGE = Histogram(
    "compute_ledger_event_age_seconds",
    "How long ago the last event of a batch was recorded, when a consumer was done with it.",
    ["consumer"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800),
)
STEP_CONFLICTS = Counter(
    "compute_ledger_step_conflicts_total", "Steps of a consumer that another process had taken already.", ["consumer"]
)
ORDERS_PUBLISHED = Counter("compute_ledger_orders_published_total", "Orders, and ends of orders, put on hosts' topics.")

# hosts

REPORTS = Counter("compute_ledger_reports_total", "Reports of hosts that were recorded.", ["kind"])
REPORTS_REFUSED = Counter(
    "compute_ledger_reports_refused_total", "Reports and heartbeats of hosts that were not taken.", ["reason"]
)
PARKED_RECORDS = Gauge(
    "compute_ledger_parked_records",
    "Messages that were left aside since this process started: they do not decode, or nothing can be decided of them.",
)
AGENT_REQUESTS_REFUSED = Counter(
    "compute_ledger_agent_requests_refused_total", "Requests of hosts for payloads and images, refused.", ["reason"]
)
AGENT_ORDERS_REFUSED = Counter(
    "compute_ledger_agent_orders_refused_total", "Orders that this host's agent did not take.", ["reason"]
)

# HTTP

HTTP_REQUESTS = Counter(
    "compute_ledger_http_requests_total", "Answered requests to the Compute API.", ["method", "status"]
)
HTTP_SECONDS = Histogram(
    "compute_ledger_http_request_seconds",
    "How long they took, from their headers to the end of their answer.",
    ["method"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
