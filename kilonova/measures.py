"""Counters of this process, for /metrics. Gauges of the cloud are read from its databases at each request."""

from __future__ import annotations

from functools import lru_cache

from prometheus_client import CollectorRegistry, Counter, Histogram

REGISTRY = CollectorRegistry()
BUCKETS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000)

OPERATIONS = Histogram(
    "kilonova_operation_seconds",
    "Operations that ended in this process, by kind and state, and how long they took.",
    ("kind", "state"),
    buckets=BUCKETS,
    registry=REGISTRY,
)
LEASES = Counter(
    "kilonova_leases_expired", "Steps whose lease expired because their worker stopped.", registry=REGISTRY
)
CONFLICTS = Counter("kilonova_placement_conflicts", "Claims that lost the race for every candidate.", registry=REGISTRY)
NOTIFICATIONS = Counter(
    "kilonova_notifications",
    "Tries to send a notification, by result; dropped and given_up were never delivered.",
    ("result",),
    registry=REGISTRY,
)
HTTP_REQUESTS = Counter(
    "kilonova_http_requests",
    "Requests by method, template of the route and status.",
    ("method", "route", "code"),
    registry=REGISTRY,
)
HTTP_SECONDS = Counter("kilonova_http_seconds", "Seconds spent on these requests.", registry=REGISTRY)


# Looking a child up by its labels costs more than counting.
@lru_cache(maxsize=1024)
def operations_of(kind: str, state: str) -> Histogram:
    return OPERATIONS.labels(kind, state)


@lru_cache(maxsize=4096)
def requests_of(method: str, route: str, code: int) -> Counter:
    return HTTP_REQUESTS.labels(method, route, str(code))
