"""What a decision log grows by so that it can be replayed from any one file: who and when in each record, the policy at
the start of a file and each change, and who the callers are. One file of the default size, filled with calls."""

from __future__ import annotations

import tempfile
import uuid
from pathlib import Path
from typing import Any

import measure
import orjson

import published
from heist_week import Clock, Counts
from toolcrib.audit import chain as audit_chain
from toolcrib.authorizer import decide
from toolcrib.identity import Identity, Issuer, ScopesPolicy
from toolcrib.snapshot import Snapshot
from toolcrib.telemetry import logs
from toolcrib.view import view_of
from toolcrib.wire.publish import Publish, PublishedAccount, Revision
from toolcrib_registry.audit import setup
from toolcrib_registry.audit.basis import Basis
from toolcrib_registry.audit.log import TOKEN, Action, DecisionLog
from toolcrib_registry.policy.view_cache import CallerView, Content
from toolcrib_registry.settings_sections import Audit

CALLS = 100
"""A second."""
AGENTS, BINDINGS, NAMESPACES = 100, 200, 20
CHANGES = 60
"""Of the policy in an hour."""
EVERY = 3600 * CALLS // CHANGES
"""Calls from one change to the next."""
GOAL = 0.05
ISSUER = "https://kubernetes.default.svc.cluster.local"


def run(quick: bool) -> dict[str, Any]:
    """Measure and print; the figures."""
    figures: dict[str, Any] = {}
    missed = []
    rows = []
    for tools in (1_000, 10_000):
        for stream in (False, True):
            size = (8 if quick else 64) << 20
            seconds = None if not stream else 600 if quick else 3600
            found = _grown(tools, size, seconds)
            figures[f"{tools} tools, {'stream' if stream else 'file'}"] = found
            rows.append([
                f"{tools:,}",
                f"an hour, {found['calls']:,} calls" if stream else f"{found['calls']:,} calls",
                f"{found['bytes'] / (1 << 20):.1f}",
                f"{found['record_bytes']:.0f}",
                f"{found['in_records']:.2%}",
                f"{found['start']:.2%}",
                f"{found['changes']:.2%}",
                f"{found['callers']:.2%}",
                f"{found['growth']:.2%}",
                f"{found['longest'] / 1024:.0f}",
            ])  # fmt: skip
            if tools == 1_000 and not quick and found["growth"] > GOAL:
                missed.append(f"{found['growth']:.1%}")
    measure.table(
        f"What a decision log grows by to be replayable: {CALLS} calls a second, {AGENTS} agents, {BINDINGS} bindings, "
        f"{CHANGES} changes an hour",
        ["tools", "one file or stream", "MiB", "bytes a call", "who, when", "start", "changes", "callers", "in all", "longest KiB"],
        rows,
    )  # fmt: skip
    measure.verdict(f"growth of at most {GOAL:.0%} at 1,000 tools", missed)
    return figures | {"missed": missed}


def projected(tools: int, seconds: int, size: int) -> dict[str, float]:
    """Growth of a `file` of `size` bytes and of an `hour` of a stream, reckoned from a log of so many seconds.

    The policy is stated once in each, and each caller explained once; calls and changes are as in that log, which has to
    be long enough for one change.
    """
    found = _grown(tools, 0, seconds)
    rest, calls = found["rest"], found["calls"]
    once = rest * (found["start"] + found["callers"])
    plain = rest / calls
    more = rest * (found["in_records"] / calls + found["changes"] / (calls // EVERY) / EVERY)
    grown = {"file": (size - once) / (plain + more), "hour": 3600.0 * CALLS}
    return {name: (once + more * number) / (plain * number) for name, number in grown.items()}


def _grown(tools: int, size: int, seconds: int | None) -> dict[str, Any]:
    """Shares of what a log would be without it: of a file until it is full, or of a stream's hour (`seconds`)."""
    with tempfile.TemporaryDirectory() as folder:
        path, calls = written(Path(folder), tools, size, seconds)
        return _shares(path, calls)


def written(folder: Path, tools: int, size: int, seconds: int | None) -> tuple[Path, int]:
    """A log of `seconds`, or of `size` bytes, in one file, and how many calls it has."""
    path, key = folder / "decisions.jsonl", folder / "audit.key"
    key.write_text("k" * 64)
    key.chmod(0o600)
    settings = Audit(path=str(path), key_file=str(key), max_bytes=1 << 40, queue=1_000_000)
    issuer = Issuer(issuer=ISSUER, audience=("toolcrib",), scopes=ScopesPolicy.BINDINGS, cluster=True)
    clock = Clock()
    log = setup.opened(settings, "toolcrib-registry-0", clock, Counts(), [issuer])
    calls = _calls(log, clock, path, tools, size, seconds)
    log.close()
    return path, calls


def _calls(log: DecisionLog, clock: Clock, path: Path, tools: int, size: int, seconds: int | None) -> int:
    world = [
        published.tool(
            f"team-{i % NAMESPACES}/tool-{i:05}", scopes=(f"tool-{i // 10}:use",), server=f"server-{i % 7}"
        )
        for i in range(tools)
    ]
    grants = [
        published.binding(
            f"grant-{i:04}",
            f"team-{i % NAMESPACES}",
            uid=str(uuid.uuid4()),
            subjects=(published.account("agents", f"agent-{i % AGENTS}"),),
            scopes=tuple(f"tool-{(i * 13 + j) % (tools // 10)}:use" for j in range(8)),
        )
        for i in range(BINDINGS)
    ]
    world = [t.model_copy(update={"uid": str(uuid.uuid4())}) for t in world]
    accounts = [
        PublishedAccount(namespace="agents", name=f"agent-{i}", uid=str(uuid.uuid4())) for i in range(AGENTS)
    ]
    snapshot = Snapshot().apply(
        Publish(
            to=Revision(epoch=7, seq=100),
            tools=tuple(world),
            bindings=tuple(grants),
            accounts=tuple(accounts),
        )
    )
    people: list[Identity] = [
        published.bot("agents", a.name, issuer=ISSUER, account_uid=a.uid) for a in accounts
    ]
    log.policy_changed(snapshot)
    number, views = 0, _views(snapshot, people, clock)
    while (number < seconds * CALLS) if seconds else (number % 1000 or _size(path) < size):
        number += 1
        clock.time += 1 / CALLS
        if number % EVERY == 0:
            old = grants[number // EVERY % BINDINGS]
            grants[number // EVERY % BINDINGS] = new = old.model_copy(
                update={"generation": old.generation + 1, "scopes": (*old.scopes[1:], old.scopes[0])}
            )
            assert snapshot.revision is not None
            to = Revision(epoch=7, seq=snapshot.revision.seq + 1)
            snapshot = snapshot.apply(Publish(base=snapshot.revision, to=to, bindings=(new,)))
            log.policy_changed(snapshot)
            views = _views(snapshot, people, clock)
        view = views[number % len(views)]
        ids = list(view.view.tools)
        tool = view.view.tools[ids[number % len(ids)]]
        at = int(clock.time * 1000) / 1000
        TOKEN.set(str(uuid.uuid4()))
        logs.request_id.set(uuid.uuid4().hex)
        decision = decide(view.identity, tool, Action.CALL, snapshot.policy, at)
        log.decided(
            Action.CALL, view.identity, tool.name, tool, decision, str(snapshot.revision), outcome="ok",
            arguments={"expression": f"{number}*7"}, seconds=0.012, basis=Basis(view, at - 0.012),
        )  # fmt: skip
    return number


def _views(snapshot: Snapshot, people: list[Identity], clock: Clock) -> list[CallerView]:
    found = [(view_of(who, snapshot, clock.time), who) for who in people]
    return [
        CallerView(Content(view), snapshot, who, (), view.valid_until) for view, who in found if view.tools
    ]


def _size(path: Path) -> int:
    return path.stat().st_size


def _shares(path: Path, calls: int) -> dict[str, Any]:
    start = changes = callers = fields = rest = longest = of_calls = 0
    with path.open("rb") as file:
        for line in file:
            record = orjson.loads(line)
            longest = max(longest, len(line))
            if record["action"] == audit_chain.IDENTITY:
                callers += len(line)
            elif record["action"].startswith(audit_chain.POLICY):
                first = record["revision"] == "7.100"
                start, changes = start + first * len(line), changes + (not first) * len(line)
            else:
                more = sum(
                    len(orjson.dumps({name: record[name]})) - 1 for name in ("who", "after") if name in record
                )
                fields, rest = fields + more, rest + len(line) - more
                of_calls += len(line) if record["action"] == "call" else 0
    shares = {"in_records": fields, "start": start, "changes": changes, "callers": callers}
    return {
        "calls": calls, "bytes": path.stat().st_size, "record_bytes": of_calls / calls, "longest": longest, "rest": rest,
        "growth": sum(shares.values()) / rest, **{name: part / rest for name, part in shares.items()},
    }  # fmt: skip
