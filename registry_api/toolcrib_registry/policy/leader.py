"""What a replica makes of a leader of an earlier version, as there is one during a rolling upgrade (decision 0046)."""

from __future__ import annotations

from dataclasses import dataclass, field

RECHECK = 60.0
"""Seconds at least between full snapshots that only prove the content to a leader with hashes of another form."""
PATIENCE = 120.0
"""Seconds after its start for which a replica leaves Services' traffic to others while no leader publishes addresses."""


@dataclass(slots=True)
class Leader:
    """What is known of the leader by what it sends."""

    started: float
    """When this replica began; all times are of one monotonic clock, in seconds."""
    current: bool = field(default=False, init=False)
    """A full snapshot came in chunks: leaders that send these publish the addresses of Services, too."""
    _disputed: str | None = field(default=None, init=False)
    """The hash that a leader named when its heartbeat was refused for it."""
    _resent: bool = field(default=False, init=False)
    _accepted: tuple[str, str] | None = field(default=None, init=False)
    _other_form: int | None = field(default=None, init=False)
    """The epoch of a leader whose hashes have another form."""
    _proved: float = field(default=0.0, init=False)

    def sent_whole(self, now: float, *, chunks: bool) -> None:
        """A full snapshot of it is in effect."""
        self.current |= chunks
        self._resent, self._proved = True, now

    def awaited(self, now: float) -> bool:
        """Whether a leader that publishes addresses may be about to take over."""
        return not self.current and now - self.started < PATIENCE

    def agrees(self, epoch: int, named: str, own: str, now: float) -> bool:
        """Whether a leader that names the hash `named` means the content that has the hash `own` here.

        Versions may make hashes in different forms. A hash that a leader still names after it has sent everything again
        is another form. Later steps lead to other hashes: those are believed for `RECHECK`, then the leader is asked
        for everything once more.
        """
        if named == own:
            self._other_form = None
            return True
        pair = (named, own)
        if pair == self._accepted:
            return True
        if named == self._disputed and self._resent:
            self._accepted, self._other_form = pair, epoch
            return True
        if self._other_form == epoch and now - self._proved < RECHECK:
            return True
        self._disputed, self._resent = named, False
        return False
