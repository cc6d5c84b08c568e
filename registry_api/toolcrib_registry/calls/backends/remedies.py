"""What to do about a backend that may not be called: it depends on where the registry runs."""

from __future__ import annotations

from typing import Protocol


class Remedies(Protocol):
    """Sentences for the details of `egress_refused` and `service_pending`."""

    def host(self, host: str, port: int) -> str:
        """How a host that `egress.allow` does not list is allowed."""
        ...

    def service(self, namespace: str, name: str | None) -> str:
        """How an address of a Service becomes known."""
        ...

    def address(self, namespace: str, name: str) -> str:
        """The same for those who see the ToolServer that names it."""
        ...


class InCluster:
    """Of a registry that the chart installed, or that was started by hand."""

    def host(self, host: str, port: int) -> str:
        """By the chart's value."""
        return f"To allow it, add {host} to `egress.allow` of the chart's values."

    def service(self, namespace: str, name: str | None) -> str:
        """By the Service, or by the registry's settings outside a cluster."""
        return (
            # callers are not told what stands behind a tool
            "See the Tool's Ready condition; outside a cluster, start the registry with"
            " --backend namespace/service=host:port."
        )

    def address(self, namespace: str, name: str) -> str:
        """By the registry's settings: what a cluster lacks, the operator says itself."""
        return f"Outside a cluster, start the registry with --backend {namespace}/{name}=host:port."


CLUSTER = InCluster()
