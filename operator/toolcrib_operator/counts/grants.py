"""What the metrics tell about grants, tools and suspended agents: a budget of series, made once a revision, not a scrape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from toolcrib.resources.bindings import SubjectKind
from toolcrib.snapshot import Snapshot
from toolcrib.telemetry import labels
from toolcrib.wire.publish import PublishedBinding, PublishedSubject
from toolcrib_operator.counts.reach import ReachCounts
from toolcrib_operator.replicas.publisher import Publisher

INFO_FACTOR = 5
"""Subjects times scopes of a binding make a series each: so many for each binding of the budget."""

Labels = tuple[str, ...]


@dataclass(frozen=True)
class Rows:
    """Label values → value, by metric; `folded` counts the series that were left out."""

    grant_info: Mapping[Labels, float] = field(default_factory=dict)
    grant_expiry: Mapping[Labels, float] = field(default_factory=dict)
    grant_matched: Mapping[Labels, float] = field(default_factory=dict)
    tool_info: Mapping[Labels, float] = field(default_factory=dict)
    tool_grants: Mapping[Labels, float] = field(default_factory=dict)
    agent_suspended: Mapping[Labels, float] = field(default_factory=dict)
    folded: Mapping[str, int] = field(default_factory=dict)


class GrantCounts:
    """Keeps `Rows` of what a publisher has published.

    Args:
        publisher: whose snapshot is told.
        reach: what has been counted of it.
        grants: bindings with series of their own: the first by name; of expiry dates, the next to come. As many
            suspended Agents.
        tools: tools with series of their own, the first by id.
    """

    def __init__(
        self, publisher: Publisher, reach: ReachCounts, *, grants: int = 2000, tools: int = 5000
    ) -> None:
        self._publisher, self._reach = publisher, reach
        self._grants, self._tools = grants, tools
        self._of: tuple[Snapshot, Mapping[str, int]] | None = None
        self._rows = Rows()

    def rows(self, now: float) -> Rows:
        """The rows of the present revision. `now`, in seconds, says which dates are over: those go last."""
        held = (self._publisher.snapshot, self._reach.tools)
        if self._of is None or self._of[0] is not held[0] or self._of[1] is not held[1]:
            self._of, self._rows = held, self._make(held[0], now)
        return self._rows

    def _make(self, snapshot: Snapshot, now: float) -> Rows:
        grants = (b for b in snapshot.bindings.values() if not b.suspends)
        bindings = sorted(grants, key=lambda b: (b.kind, grant(b)))
        own = bindings[: self._grants]
        suspended = sorted(grant(b) for b in snapshot.bindings.values() if b.suspends)
        info = list(islice((row for b in own for row in _info(b)), self._grants * INFO_FACTOR))
        dated = [(b.expires_at, b) for b in bindings if b.expires_at is not None]
        dated.sort(key=lambda d: (d[0] <= now, d[0]))
        ids = sorted(snapshot.tools)
        tools = [snapshot.tools[i] for i in ids[: self._tools]]
        reached = self._reach.tools
        return Rows(
            grant_info=dict.fromkeys(info, 1.0),
            grant_expiry={(b.kind, grant(b)): at for at, b in dated[: self._grants]},
            grant_matched={(b.kind, grant(b)): self._reach.bindings.get(b.uid, 0) for b in own},
            tool_info={(t.tool_id, t.server or "", t.state.value): 1.0 for t in tools},
            tool_grants={(t.tool_id, t.server or ""): reached.get(t.tool_id, 0) for t in tools},
            agent_suspended={(name,): 1.0 for name in suspended[: self._grants]},
            folded={
                "toolcrib_grant_info": sum(_size(b) for b in bindings) - len(info),
                "toolcrib_grant_expiry_timestamp_seconds": max(0, len(dated) - self._grants),
                "toolcrib_grant_matched_tools": len(bindings) - len(own),
                "toolcrib_tool_info": len(ids) - len(tools),
                "toolcrib_tool_grants": len(ids) - len(tools),
                "toolcrib_agent_suspended": max(0, len(suspended) - self._grants),
            },
        )


def grant(binding: PublishedBinding) -> str:
    """`namespace/name`, or the name of a cluster binding."""
    return binding.name if binding.namespace is None else f"{binding.namespace}/{binding.name}"


def subject(s: PublishedSubject) -> str:
    """As the registry's label `agent` names an identity whose subject is the client or user; a group as `group:NAME`."""
    match s.kind:
        case SubjectKind.OAUTH_CLIENT:
            return labels.of_subject(s.issuer or "", s.client_id or "")
        case SubjectKind.USER:
            return labels.of_subject(s.issuer or "", s.name or "")
        case SubjectKind.GROUP:
            return f"group:{s.name}"
        case _:
            return labels.of_account(s.namespace or "", s.name or "")


def _info(b: PublishedBinding) -> Iterator[Labels]:
    """One row a subject and scope; a binding that only denies has the empty scope."""
    subjects = dict.fromkeys(map(subject, b.subjects))
    for who in subjects:
        for scope in dict.fromkeys(b.scopes) or ("",):
            yield b.kind, grant(b), who, scope


def _size(b: PublishedBinding) -> int:
    return len({subject(s) for s in b.subjects}) * max(1, len(set(b.scopes)))
