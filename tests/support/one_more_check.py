"""What the product says of a check that the chain has besides its own: run where `toolcrib` is a copy with one more entry.

A caller with a grant over three tools, of which one has the mark `set-aside`; prints what each place says as JSON.
"""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from published import CLUSTER, binding, bot, tool
from toolcrib import authorizer
from toolcrib.access.changes import changes
from toolcrib.access.review import AccessReview
from toolcrib.access.subjects import Tokens, Who
from toolcrib.authorizer import Action, Reason, decide, granted_scopes, has_power
from toolcrib.identity import ScopesPolicy
from toolcrib.resources.bindings import SubjectKind
from toolcrib.snapshot import Snapshot
from toolcrib.view import view_of
from toolcrib.wire.publish import Publish, PublishedSubject, Revision
from toolcrib_registry.metrics.recorder import Metrics

NOW, LATER = 1_800_000_000.0, 1_900_000_000.0
ROOT = Path(__file__).parents[2]
EVERYBODY = tuple(
    PublishedSubject(kind=SubjectKind.SERVICE_ACCOUNT, namespace="team-a", name=name)
    for name in ("bot", "set-aside")
)


def told(account: str, pages: bool) -> dict[str, Any]:
    """What the product says of `team-a/<account>` and the tool that is set aside; `pages`: in its documentation, too."""
    marked = tool("team-a/marked", tags=("set-aside",))
    tools = (marked, tool("team-a/plain"), tool("team-b/marked", name="marked"))
    bindings = (
        binding("all", None, subjects=EVERYBODY, scopes=("use", "registry:admin")),
        binding("own", subjects=EVERYBODY),
    )
    snapshot = Snapshot(policy=authorizer.Policy(anonymous_list=True)).apply(
        Publish(to=Revision(epoch=1, seq=1), tools=tools, bindings=bindings)
    )
    identity, policy = bot(name=account), snapshot.policy
    decision = decide(identity, marked, Action.CALL, policy, NOW)
    view = view_of(identity, snapshot, NOW)
    tokens = Tokens(CLUSTER, {CLUSTER: ScopesPolicy.BINDINGS})
    review = AccessReview(snapshot, NOW, tokens, Action.CALL)
    later = changes(review, AccessReview(snapshot, LATER, tokens, Action.CALL))
    explained = review.explain(Who(SubjectKind.SERVICE_ACCOUNT, account, "team-a"), marked)
    return {
        "decided": [decision.allowed, decision.reason.value, decision.reason.step],
        "view": dict(view.names),
        "anonymous": sorted(view_of(None, snapshot, NOW).tools),
        "scopes": granted_scopes(identity, policy, NOW),
        "power": has_power(identity, "registry:admin", policy, NOW),
        "explained": [explained.allowed, explained.reason.value, explained.step, explained.rule],
        "steps": [s.verdict for s in explained.steps],
        "later": [(s.who.name, t.tool_id, t.change) for s in later.subjects for t in s.tools],
        "answer": json.loads(explained.model_dump_json())["reason"],
        "metrics": _counted(decision),
        "documented": _documented(decision.reason) if pages else [],
    }


def _counted(decision: authorizer.Decision) -> list[str]:
    registry = CollectorRegistry()
    metrics = Metrics(registry, full=False)
    metrics.cut(decision)
    metrics.decided("call", decision, None)
    lines = generate_latest(registry).decode().splitlines()
    names = ("toolcrib_decisions_total{", "toolcrib_calls_cut_total{", "toolcrib_denials_total{")
    return [line for line in lines if line.startswith(names)]


def _documented(reason: Reason) -> list[str]:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs/generate.py")
    assert spec is not None
    assert spec.loader is not None
    docs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(docs)
    pages = docs.pages()
    return sorted(name for name, text in pages.items() if f"| `{reason.value}` | {reason.meaning} |" in text)


if __name__ == "__main__":
    print(json.dumps(told(sys.argv[1], pages="--no-pages" not in sys.argv)))
