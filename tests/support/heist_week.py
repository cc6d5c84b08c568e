"""A week of the heist as a decision log: the crew works by day under a broad binding, and some of it is never needed."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

import decision_logs
import published
from realparts.processes import wait_until
from toolcrib import publishing
from toolcrib.authorizer import Action, decide
from toolcrib.identity import Issuer, ScopesPolicy
from toolcrib.resources.bindings import AgentScopeBinding
from toolcrib.resources.kinds import parse
from toolcrib.resources.tools import Tool
from toolcrib.snapshot import Snapshot
from toolcrib.view import view_of
from toolcrib.wire.publish import Publish, Revision
from toolcrib_registry.audit import setup
from toolcrib_registry.audit.basis import Basis
from toolcrib_registry.policy.view_cache import CallerView, Content
from toolcrib_registry.settings_sections import Audit

EXAMPLES = Path(__file__).parents[2] / "examples"
CREW = EXAMPLES / "week" / "crew.yaml"
MONDAY = datetime(2027, 3, 1, tzinfo=UTC).timestamp()
HOUR, DAY = 3_600.0, 86_400.0
HABITS = (
    ("hacker", "file_reader", "ok", range(7)),
    ("hacker", "simulation_data", "ok", (1, 4)),
    ("safecracker", "calculator", "ok", range(7)),
    ("safecracker", "database_query", "upstream_timeout", (2,)),
)
"""Who calls what, what comes of it, and on which days; the planner looks every day and never calls."""


class Clock:
    """Set by hand."""

    time = MONDAY

    def now(self) -> float:
        return self.time

    def elapsed(self) -> float:
        return self.time

    async def sleep_until(self, moment: float) -> None:
        raise NotImplementedError


class Counts:
    """Nobody counts."""

    def written(self, records: int, seq: int) -> None: ...

    def lost(self, records: int) -> None: ...

    def failed(self) -> None: ...


def policy() -> Publish:
    """The heist with the broad binding."""
    found = [yaml.safe_load(f.read_text()) for f in sorted((EXAMPLES / "heist").glob("3*.yaml"))]
    resources: list[Any] = [parse(each) for each in (*found, yaml.safe_load(CREW.read_text()))]
    return Publish(
        to=Revision(epoch=1, seq=1),
        tools=tuple(publishing.tool(r) for r in resources if isinstance(r, Tool)),
        bindings=tuple(publishing.binding(r) for r in resources if isinstance(r, AgentScopeBinding)),
    )


def written(folder: Path, *, calls_an_hour: int = 3) -> Path:
    """The log of the week, with its key beside it."""
    path, clock = folder / "decisions.jsonl", Clock()
    clock.time = MONDAY
    settings = Audit(path=str(path), key_file=decision_logs.key_file(folder), queue=1_000_000)
    issuer = Issuer(
        issuer=published.CLUSTER, audience=("toolcrib",), scopes=ScopesPolicy.BINDINGS, cluster=True
    )
    log = setup.opened(settings, "toolcrib-registry-0", clock, Counts(), [issuer])
    snapshot = Snapshot().apply(policy())
    log.policy_changed(snapshot)
    # its records get the time at which they are written
    wait_until(lambda: '"policy.binding"' in path.read_text())
    for hour in range(7 * 24):
        day, time = divmod(hour, 24)
        clock.time = MONDAY + hour * HOUR
        for who in ("planner", "hacker", "safecracker"):
            identity = published.bot("heist", who)
            view = view_of(identity, snapshot, clock.time)
            seen = CallerView(Content(view), snapshot, identity, (), view.valid_until)
            if time == 8:
                log.listed(Action.LIST, seen)
            for agent, name, outcome, days in HABITS:
                if agent != who or day not in days or not 9 <= time < 17:
                    continue
                tool = next(t for t in snapshot.tools.values() if t.name == name)
                for _ in range(calls_an_hour):
                    clock.time += 1
                    decision = decide(identity, tool, Action.CALL, snapshot.policy, clock.time)
                    log.decided(
                        Action.CALL, identity, name, tool, decision, str(snapshot.revision), outcome=outcome,
                        arguments={}, seconds=0.01, basis=Basis(seen, clock.time - 0.01),
                    )  # fmt: skip
    log.close()
    return path
