"""Requests of an agent as Prometheus metrics; takes the extra `metrics`.

crib = Toolcrib(url, token_source, observe=ClientMetrics())
"""

from __future__ import annotations

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Seconds: a call may take as long as the longest deadline of a Tool."""


class ClientMetrics:
    """`toolcrib_client_requests_total{operation, outcome}` and `toolcrib_client_request_seconds{operation}`.

    `operation` is tools, search, describe, load or call; `outcome` is ok, cancelled, the registry's code, or the name
    of an error that has none. One object may observe several clients.

    Raises:
        ValueError: `registry` has such metrics already.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._requests = Counter(
            "toolcrib_client_requests",
            "Requests to the registry, by what they were for and what came of them.",
            ["operation", "outcome"],
            registry=registry,
        )
        self._seconds = Histogram(
            "toolcrib_client_request_seconds",
            "How long requests to the registry took, retries and token source included.",
            ["operation"],
            registry=registry,
            buckets=BUCKETS,
        )

    def __call__(self, operation: str, outcome: str, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(operation, outcome).inc()
        self._seconds.labels(operation).observe(seconds)
