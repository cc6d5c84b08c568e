"""Which connections a listener lets in: how many, how many of one peer, and how slow their clients may be."""

from __future__ import annotations

import contextlib
import logging
import resource
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from toolcrib_registry.limits.shares import Path, Shares
from toolcrib_registry.settings_limits import Limits

log = logging.getLogger(__name__)

OTHERS = 256
"""Connections of the listeners that agents do not use: operators, probes and scrapers need a few each. One peer has a
quarter of them at most."""
PLACE = "toolcrib.connection"
"""In the scope of a request: its connection's place."""
_OPEN_FILES = 65_536


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of one listener. `trusted` are networks of proxies: there one peer stands for many clients.

    With `replaces`, a connection that finds no place takes that of the oldest idle one, instead of being refused.
    """

    header_seconds: float = 10.0
    body_seconds: float = 10.0
    send_seconds: float = 30.0
    connections: int = 4096
    per_peer: int = 512
    trusted: tuple[IPv4Network | IPv6Network, ...] = ()
    replaces: bool = False


class ConnectionGate:
    """Counts the connections of one listener and says who is let in.

    One peer has at most so many, and never more than are still free of all (`limits/shares.py`).

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
        self.shares = Shares(self.bounds.connections, self.bounds.per_peer)
        self.slots: set[ConnectionSlot] = set()

    @property
    def open(self) -> int:
        """Connections that have a place."""
        return self.shares.held.get((), 0)

    def enter(self, address: str, now: float) -> ConnectionSlot | None:
        """A place for a connection from `address`; None where there is none left."""
        path = self._path(address)
        if (level := self.shares.full(path)) is not None:
            self.closed("connections_per_peer" if level else "connections")
            idle = self._oldest_idle(path, level) if self.bounds.replaces else None
            if idle is None:
                return None
            idle.close()
        return ConnectionSlot(self, path, now)

    def _oldest_idle(self, path: Path, level: int) -> ConnectionSlot | None:
        """The one whose place a connection of `path` takes: of its own peer, or of one that has more where all are taken."""
        idle = sorted((slot for slot in self.slots if slot.idle), key=lambda slot: slot.since)
        if level == 0 and idle:
            largest, count = Counter(slot.path for slot in idle).most_common(1)[0]
            if count > self.shares.held.get(path, 0):
                path = largest
        return next((slot for slot in idle if slot.path == path), None)

    def _path(self, address: str) -> Path:
        """Return the key by which connections are counted: the address, of IPv6 its /64; empty for a proxy."""
        found = ip_address(address)
        if isinstance(found, IPv6Address):
            found = found.ipv4_mapped or found
        if any(found in network for network in self.bounds.trusted):
            return ()
        if isinstance(found, IPv6Address):
            return (str(ip_network((int(found) >> 64 << 64, 64))),)
        return (str(found),)


class ConnectionSlot:
    """One connection's place, from the moment it was accepted; given back once.

    Attributes:
        since: when it was accepted, or its last answer ended.
        busy: a request is being answered.
        connection: closed to make room.
    """

    __slots__ = ("_gate", "accepted", "admitted", "busy", "connection", "path", "since")

    def __init__(self, gate: ConnectionGate, path: Path, accepted: float) -> None:
        self._gate: ConnectionGate | None = gate
        self.path, self.accepted, self.since = path, accepted, accepted
        self.busy = self.admitted = False
        self.connection: socket.socket | None = None
        gate.shares.take(path)
        gate.slots.add(self)

    @property
    def idle(self) -> bool:
        """Return True if it may be closed to make room: nothing is asked, and nobody has shown who he is."""
        return not (self.busy or self.admitted)

    def admit(self) -> None:
        """Keep it from now on, beside its peer's share: a verified admin uses it."""
        self.admitted = True
        if self._gate is not None:
            self._gate.shares.leave(self.path)
            self.path = ()
            self._gate.shares.take(self.path)

    def leave(self) -> None:
        """The connection is gone."""
        if self._gate is not None:
            self._gate.shares.leave(self.path)
            self._gate.slots.discard(self)
            self._gate = None

    def close(self) -> None:
        """Close the connection, as its client would, and give its place to another."""
        self.leave()
        if self.connection is not None:
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)


def make(
    name: str,
    limits: Limits,
    trusted: Sequence[IPv4Network | IPv6Network],
    observe: Callable[[str, Callable[[], float]], Callable[[str], None]],
) -> ConnectionGate:
    """The door of the listener `name`, counted by what `observe` gives for its name and what reads its connections."""
    agents = name == "agents"
    connections = limits.connections if agents else min(limits.connections, OTHERS)
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
            limits.connections_per_peer
            if agents
            else min(limits.connections_per_peer, max(1, connections // 4)),
            tuple(trusted) if agents else (),
            replaces=not agents,
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
