"""Which connections a listener lets in: how many, how many of one peer, and how slow their clients may be."""

from __future__ import annotations

import contextlib
import logging
import resource
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from toolcrib_registry.settings_limits import Limits

log = logging.getLogger(__name__)

OTHERS = 256
"""Connections of the listeners that agents do not use: operators, probes and scrapers need a few each."""
_OPEN_FILES = 65_536


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What one listener allows. `trusted` are networks of proxies: there one peer stands for many clients."""

    header_seconds: float = 10.0
    body_seconds: float = 10.0
    send_seconds: float = 30.0
    connections: int = 4096
    per_peer: int = 512
    trusted: tuple[IPv4Network | IPv6Network, ...] = ()


class ConnectionGate:
    """Counts the connections of one listener and says who is let in.

    Args:
        name: of the listener.
        bounds: what it allows.
        on_closed: told the reason (`metrics.recorder.CLOSED`) for each connection that is refused or closed.
    """

    def __init__(
        self,
        name: str = "agents",
        bounds: ConnectionLimits | None = None,
        on_closed: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self.name, self.bounds, self.closed = name, bounds or ConnectionLimits(), on_closed
        self.open = 0
        self._peers: Counter[str] = Counter()

    def enter(self, address: str, now: float) -> ConnectionSlot | None:
        """A place for a connection from `address`; None where there is none left."""
        peer = self._peer(address)
        if self.open >= self.bounds.connections:
            self.closed("connections")
            return None
        if peer is not None:
            if self._peers[peer] >= self.bounds.per_peer:
                self.closed("connections_per_peer")
                return None
            self._peers[peer] += 1
        self.open += 1
        return ConnectionSlot(self, peer, now)

    def leave(self, peer: str | None) -> None:
        """A place is free again."""
        self.open -= 1
        if peer is not None:
            self._peers[peer] -= 1
            if not self._peers[peer]:
                del self._peers[peer]

    def _peer(self, address: str) -> str | None:
        """What connections are counted by: the address, of IPv6 its /64; None for a proxy."""
        found = ip_address(address)
        if isinstance(found, IPv6Address):
            found = found.ipv4_mapped or found
        if any(found in network for network in self.bounds.trusted):
            return None
        if isinstance(found, IPv6Address):
            return str(ip_network((int(found) >> 64 << 64, 64)))
        return str(found)


class ConnectionSlot:
    """One connection's place, from the moment it was accepted; given back once."""

    __slots__ = ("_peer", "accepted", "door")

    def __init__(self, door: ConnectionGate, peer: str | None, accepted: float) -> None:
        self.door: ConnectionGate | None = door
        self.accepted = accepted
        self._peer = peer

    def leave(self) -> None:
        """The connection is gone."""
        if self.door is not None:
            self.door.leave(self._peer)
            self.door = None


def make(
    name: str,
    limits: Limits,
    trusted: Sequence[IPv4Network | IPv6Network],
    observe: Callable[[str, Callable[[], float]], Callable[[str], None]],
) -> ConnectionGate:
    """The door of the listener `name`, counted by what `observe` gives for its name and what reads its connections."""
    connections = limits.connections if name == "agents" else min(limits.connections, OTHERS)
    files = allow_open_files()
    if connections > files // 2:
        log.warning(
            "listener %s accepts at most %d connections, because the process may open only %d files",
            name,
            files // 2,
            files,
        )
        connections = max(1, files // 2)
    door = ConnectionGate(
        name,
        ConnectionLimits(
            limits.header_seconds,
            limits.body_seconds,
            limits.send_seconds,
            connections,
            limits.connections_per_peer,
            tuple(trusted),
        ),
    )
    door.closed = observe(name, lambda: door.open)
    return door


def allow_open_files() -> int:
    """Let this process open as many files as it may, up to a bound; how many that are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            return wanted
    return _OPEN_FILES if soft == resource.RLIM_INFINITY else soft
