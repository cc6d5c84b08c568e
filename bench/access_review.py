"""Access reviews over 10,000 tools and 1,000 bindings, against one `view_of` of the same snapshot, in one process."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import measure

from toolcrib import publishing
from toolcrib.access.changes import changes
from toolcrib.access.proposals import proposed
from toolcrib.access.review import AccessReview
from toolcrib.access.subjects import Tokens, Who
from toolcrib.resources.bindings import SubjectKind
from toolcrib.snapshot import Snapshot
from toolcrib.view import view_of
from toolcrib.wire.publish import Publish, PublishedBinding, PublishedSubject, PublishedTool, Revision

NOW = 1_800_000_000.0
NAMESPACES, SCOPES, ACCOUNTS = 50, 40, 400
BOT = Who(SubjectKind.SERVICE_ACCOUNT, "bot-0", "team-0")
READER = Who(SubjectKind.SERVICE_ACCOUNT, "everything", "team-0")


def run(quick: bool) -> dict[str, Any]:
    """Measure and print; the figures."""
    tools, bindings = (1_000, 100) if quick else (10_000, 1_000)
    snapshot = _snapshot(tools, bindings)
    asked = AccessReview(snapshot, NOW, Tokens())
    named = asked.find(next(iter(view_of(asked.identity(BOT), snapshot, NOW).tools)))
    grant, deny = _manifest("new", ["scope-1", "scope-2"]), _manifest("stop", [], deny=["tool-1*"])

    def diff(manifest: dict[str, Any]) -> object:
        after, changed = proposed(snapshot, [manifest], [], Tokens())
        return changes(asked, AccessReview(after, NOW, Tokens(), proposed=changed))

    wide = asked.identity(READER)
    work: dict[str, Callable[[], object]] = {
        "view_of, the one that sees everything": lambda: view_of(wide, snapshot, NOW),
        "what-can, the same": lambda: asked.what_can(READER),
        "what-can, a page of 500 of it": lambda: asked.what_can(READER, limit=500),
        "view_of, an ordinary one": lambda: view_of(asked.identity(BOT), snapshot, NOW),
        "what-can, the same one": lambda: asked.what_can(BOT),
        "what-can, with every hidden tool and why": lambda: asked.what_can(BOT, hidden=True),
        "who-can": lambda: asked.who_can(named),
        "explain": lambda: asked.explain(BOT, named),
        "diff of one new binding, for everybody": lambda: diff(grant),
        "diff of one new denial, for everybody": lambda: diff(deny),
    }
    spent: dict[str, list[float]] = {name: [] for name in work}
    for turn in range(3 if quick else 8):
        for name, do in work.items():
            start = time.perf_counter()
            do()
            if turn:  # the first one warms caches and code
                spent[name].append(time.perf_counter() - start)
    base = spent["view_of, the one that sees everything"]
    rows, figures = [], {}
    for name, times in spent.items():
        ratio, low, high = measure.ratios(times, base)
        figures[name] = {"seconds": statistics.median(times), "ratio": ratio, "low": low, "high": high}
        rows.append(
            [name, f"{statistics.median(times) * 1e3:.1f}", f"{ratio:.2f}", f"{low:.2f} to {high:.2f}"]
        )
    subjects = len(asked.subjects())
    counts = f"{tools:,} tools, {bindings:,} bindings, {subjects:,} subjects; {len(asked.who_can(named).subjects)} of one tool"
    measure.table(f"Access reviews: {counts}", ["", "ms", "to view_of", "range"], rows)
    return figures


def _snapshot(tools: int, bindings: int) -> Snapshot:
    draw = random.Random(5)
    step = Publish(
        to=Revision(epoch=1, seq=1),
        tools=tuple(_tool(draw, i) for i in range(tools)),
        bindings=(*(_binding(draw, i) for i in range(bindings - 1)), _everything()),
    )
    return Snapshot().apply(step)


def _tool(draw: random.Random, number: int) -> PublishedTool:
    namespace = f"team-{number % NAMESPACES}"
    return publishing.with_digests(
        tool_id=f"{namespace}/tool-{number}", uid=f"t{number}", generation=1, namespace=namespace,
        name=f"tool-{number % 5_000}", server=draw.choice((None, "github", "web")),
        scopes=(f"scope-{draw.randrange(SCOPES)}",), description="A tool.",
    )  # fmt: skip


def _binding(draw: random.Random, number: int) -> PublishedBinding:
    namespace = None if number % 10 == 0 else f"team-{number % NAMESPACES}"
    subjects = tuple(
        PublishedSubject(
            kind=SubjectKind.SERVICE_ACCOUNT, namespace=f"team-{a % NAMESPACES}", name=f"bot-{a}"
        )
        for a in draw.sample(range(ACCOUNTS), 3)
    )
    if number < 10:
        subjects = (PublishedSubject(kind=SubjectKind.SERVICE_ACCOUNT, namespace="team-0", name="bot-0"),)
    return PublishedBinding(
        uid=f"b{number}", generation=1, kind="AgentScopeBinding" if namespace else "ClusterAgentScopeBinding",
        namespace=namespace, name=f"grant-{number}", subjects=subjects,
        namespaces=(namespace,) if namespace else tuple(f"team-{n}" for n in draw.sample(range(NAMESPACES), 3)),
        scopes=tuple(f"scope-{s}" for s in draw.sample(range(SCOPES), 3)),
        deny=("tool-13*",) if number % 7 == 0 else (),
    )  # fmt: skip


def _everything() -> PublishedBinding:
    reader = PublishedSubject(kind=SubjectKind.SERVICE_ACCOUNT, namespace="team-0", name="everything")
    return PublishedBinding(
        uid="all", generation=1, kind="ClusterAgentScopeBinding", name="everything", subjects=(reader,),
        namespaces=None, scopes=tuple(f"scope-{s}" for s in range(SCOPES)),
    )  # fmt: skip


def _manifest(name: str, scopes: list[str], deny: list[str] | None = None) -> dict[str, Any]:
    account = {"kind": "ServiceAccount", "namespace": "team-1", "name": "bot-1"}
    spec: dict[str, Any] = {"subjects": [account], "namespaceSelector": {}}
    if scopes:
        spec["scopes"] = scopes
    if deny:
        spec["tools"] = {"deny": deny}
    return {
        "apiVersion": "toolcrib.dev/v1alpha1", "kind": "ClusterAgentScopeBinding", "metadata": {"name": name},
        "spec": spec,
    }  # fmt: skip
