"""What can go wrong on the way to a backend or a key server, before anybody reads the answer.

OutboundError
├── EgressRefused        the guard said no; nothing was sent
│   ├── HostNotAllowed   a host that `egress.allow` does not list
│   └── NoAddress        a Service whose address has not been published
├── Unreachable          no connection: name unknown, refused, TLS failed
│   └── Disconnected     the connection died before the first byte of an answer
├── TimedOut             the deadline passed
├── TooLarge             the answer exceeds its bound
└── ProtocolViolation    the response is not valid HTTP: bad headers, lying length, broken encoding
"""

from __future__ import annotations


class OutboundError(Exception):
    """The root; messages name hosts and rules, never credentials or content."""


class EgressRefused(OutboundError):
    """The guard refuses this host or address; `.reason` says which rule."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class HostNotAllowed(EgressRefused):
    """`egress.allow` does not list the host and port."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        super().__init__(f"{host} (port {port}) is not in egress.allow")


class NoAddress(EgressRefused):
    """The Service has no published address: it does not exist, or the operator has not read it."""

    def __init__(self, namespace: str, name: str, port: int) -> None:
        self.namespace, self.name = namespace, name
        super().__init__(f"the operator has published no address of Service {namespace}/{name}, port {port}")


class Unreachable(OutboundError):
    """No connection could be made."""


class Disconnected(Unreachable):
    """The connection died before the first byte of an answer; safe to retry where the call is idempotent."""


class TimedOut(OutboundError):
    """The deadline passed before the whole answer was there."""


class TooLarge(OutboundError):
    """The answer is larger than its bound; reading stopped there."""


class ProtocolViolation(OutboundError):
    """The answer is not sound HTTP."""
