"""Answers to "who may do what, and why?": of the registry's access review and of `toolcrib access -o json` alike.

Every line names the rule that decided: the reason constant, the step of the order (DESIGN §3), and the object with
its UID and generation. Times are RFC 3339.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from toolcrib.authorizer import Action, Order, Reason
from toolcrib.wire.api import Answer, Request, example
from toolcrib.wire.publish import PublishedLimits

_BINDING: dict[str, Any] = {
    "kind": "AgentScopeBinding",
    "namespace": "heist",
    "name": "safecracker",
    "uid": "6f0c1c39-5a0e-4a53-a5c4-8f0f7c2f1d2a",
    "generation": 2,
}
_SUBJECT: dict[str, Any] = {
    "subject": "ServiceAccount/heist/safecracker",
    "kind": "ServiceAccount",
    "namespace": "heist",
    "name": "safecracker",
}
_RULE: dict[str, Any] = {
    "allowed": True,
    "reason": "granted",
    "rule": "AgentScopeBinding heist/safecracker (generation 2) grants calculator:use",
    "binding": _BINDING,
    "scopes": ["calculator:use"],
}
_TOOL: dict[str, Any] = {"tool_id": "heist/calculator", "name": "calculator", **_RULE}
_HOLDER: dict[str, Any] = {
    "who": _SUBJECT,
    "binding": _BINDING,
    "holds": True,
    "state": "in_effect",
    "namespaces": ["heist"],
    "until": "2027-01-31T12:00:00Z",
}
_NOT_SEEN: dict[str, Any] = {
    "tool_id": "heist/calculator",
    "allowed": False,
    "reason": "no_binding",
    "step": 4,
    "rule": "no binding of this subject reaches the tool",
}


class ReviewedBinding(Answer):
    """Which binding, as it stands; `proposed`: it is not applied, or not like this."""

    model_config = example(**_BINDING)

    kind: str
    namespace: str | None = None
    name: str
    uid: str
    generation: int
    proposed: bool = False

    @property
    def ref(self) -> str:
        """`Kind namespace/name`."""
        return f"{self.kind} {self.namespace + '/' if self.namespace else ''}{self.name}"


class ReviewedSubject(Answer):
    """A subject; `subject` is how questions write it."""

    model_config = example(**_SUBJECT)

    subject: str
    kind: str
    namespace: str | None = None
    name: str
    issuer: str | None = None


class Rule(Answer):
    """What decided, and how."""

    allowed: bool
    reason: Reason
    step: int | None = Field(default=None, description="The step of the order that refused; null if allowed.")
    rule: str = Field(description="The same in words.")
    binding: ReviewedBinding | None = Field(default=None, description="The binding that decided, if one did.")
    scopes: tuple[str, ...] = Field(default=(), description="The tool's scopes that are granted.")
    others: tuple[ReviewedBinding, ...] = Field(
        default=(), description="With scopeMatch All: the bindings that grant the rest."
    )
    token_scopes: tuple[str, ...] = Field(
        default=(), description="Scopes that the token must carry too: one of them, with scopeMatch All each."
    )
    until: str | None = Field(default=None, description="When the deciding binding expires.")
    limits: PublishedLimits | None = Field(
        default=None, description="How much it allows each subject to call."
    )


class ReviewedTool(Rule):
    """A tool as one subject has it. `name` is the name by which it lists and calls it; null if it is hidden."""

    model_config = example(**_TOOL)

    tool_id: str
    name: str | None = None


class SubjectVerdict(Rule):
    """A subject as one tool has it."""

    model_config = example(**_RULE, who=_SUBJECT)

    who: ReviewedSubject


class ConsideredBinding(Answer):
    """What one binding of the subject says of the tool."""

    binding: ReviewedBinding
    verdict: Literal["denies", "grants", "passes"]
    reason: Reason | None = Field(default=None, description="Why it grants nothing; null if it grants.")
    rule: str
    scopes: tuple[str, ...] = ()


class Step(Answer):
    """One step of the order."""

    step: int
    title: str
    verdict: Literal["passed", "failed", "not_reached", "not_asked"]
    detail: str


class Review(Answer):
    """What every answer says of itself."""

    revision: str = Field(description="Of the registry, or where the world was read from.")
    at: str = Field(description="The moment that the answer is for.")
    predicted: bool = Field(default=False, description="Bindings that are not applied were counted.")
    assumptions: tuple[str, ...] = Field(default=(), description="What was taken to be so.")
    notes: tuple[str, ...] = Field(
        default=(), description="What to know besides: a name that nothing has, a parameter without effect."
    )


class WhatCan(Review):
    """Which tools a subject sees and may call."""

    model_config = example(
        question="what_can", revision="3.17", at="2026-11-22T10:00:00Z", who=_SUBJECT, action="call",
        tools=[_TOOL], visible=1, ambiguous=[],
    )  # fmt: skip

    question: Literal["what_can"] = "what_can"
    who: ReviewedSubject
    action: Action
    visible: int = Field(
        description="How many tools it sees; the resources of a server count as one, and so do its prompts."
    )
    tools: tuple[ReviewedTool, ...]
    ambiguous: tuple[str, ...] = Field(
        default=(),
        description="Bare names that mean several of its tools; it names those by their ids.",
    )
    next_cursor: str | None = None


class WhoCan(Review):
    """Who may do something with a tool: the subjects that bindings name."""

    model_config = example(
        question="who_can", revision="3.17", at="2026-11-22T10:00:00Z", tool_id="heist/calculator", action="call",
        subjects=[{**_RULE, "who": _SUBJECT}],
    )  # fmt: skip

    question: Literal["who_can"] = "who_can"
    tool_id: str
    action: Action
    subjects: tuple[SubjectVerdict, ...]
    next_cursor: str | None = None


class Holder(Answer):
    """One subject's grant of a scope, by one binding."""

    model_config = example(**_HOLDER)

    who: ReviewedSubject
    binding: ReviewedBinding
    holds: bool = Field(description="The grant is in effect now.")
    state: Literal[
        "in_effect",
        "denied",
        "expired",
        "not_yet",
        "account_gone",
        "suspended",
        "not_trusted",
        "token_decides",
    ]
    detail: str = Field(default="", description="Why it is not in effect, in words.")
    namespaces: tuple[str, ...] | None = Field(
        default=None, description="Whose tools the binding reaches; null: those of every namespace."
    )
    servers: tuple[str, ...] | None = Field(
        default=None, description="The servers whose tools it reaches; null: every server."
    )
    allow: tuple[str, ...] | None = Field(
        default=None, description="Patterns of the tools that it allows; null: all."
    )
    denied_by: tuple[ReviewedBinding, ...] = Field(
        default=(),
        description="Bindings that deny it, where every tool that the grant reaches with the scope is denied.",
    )
    token_needs_scope: bool = Field(default=False, description="The token must carry the scope too.")
    not_before: str | None = None
    until: str | None = Field(default=None, description="When the binding expires.")
    limits: PublishedLimits | None = None


class WhoHolds(Review):
    """Which subjects hold a scope, by which bindings."""

    model_config = example(
        question="who_holds", revision="3.17", at="2026-11-22T10:00:00Z", scope="calculator:use", tools=1,
        holders=[_HOLDER],
    )  # fmt: skip

    question: Literal["who_holds"] = "who_holds"
    scope: str
    tools: int = Field(description="How many tools have the scope.")
    holders: tuple[Holder, ...]
    next_cursor: str | None = None


class Explanation(Review, Rule):
    """Why one subject may or may not do something with one tool: the order, step by step."""

    model_config = example(
        question="explain", revision="3.17", at="2026-11-22T10:00:00Z", who=_SUBJECT, tool_id="heist/calculator",
        action="call", **_RULE,
        steps=[{"step": 1, "title": Order.IDENTITY.title, "verdict": "passed", "detail": ""}],
        bindings=[{"binding": _BINDING, "verdict": "grants", "rule": _RULE["rule"]}],
    )  # fmt: skip

    question: Literal["explain"] = "explain"
    who: ReviewedSubject
    tool_id: str
    name: str | None = None
    action: Action
    steps: tuple[Step, ...]
    bindings: tuple[ConsideredBinding, ...]
    fallbacks: tuple[ReviewedTool, ...] = Field(
        default=(),
        description="What is called in the place of the tool while its backend is down, where this subject may call it.",
    )


class ToolChange(Answer):
    """One tool of one subject, before and after; on the side where it is not seen, why not."""

    tool_id: str
    change: Literal["gained", "lost", "changed"]
    before: ReviewedTool
    after: ReviewedTool


class SubjectChanges(Answer):
    """What changes for one subject."""

    who: ReviewedSubject
    gained: int
    lost: int
    changed: int
    tools: tuple[ToolChange, ...]


class Changes(Review):
    """What a change of manifests would change, by subject; only subjects for whom something changes."""

    model_config = example(
        question="diff", revision="3.17", at="2026-11-22T10:00:00Z", predicted=True, action="call",
        subjects=[
            {
                "who": _SUBJECT, "gained": 1, "lost": 0, "changed": 0,
                "tools": [{"tool_id": "heist/calculator", "change": "gained", "before": _NOT_SEEN, "after": _TOOL}],
            }
        ],
    )  # fmt: skip

    question: Literal["diff"] = "diff"
    action: Action
    subjects: tuple[SubjectChanges, ...]
    next_cursor: str | None = None


class AccessReviewRequest(Request):
    """`POST /v1/access-review`. With `subject`: what can it see? With `tool`: who can call it? With both: why?

    With `scope`: who holds it? With none of these: what would the bindings change?
    """

    model_config = example(
        subject="ServiceAccount/heist/safecracker",
        bindings=[
            {
                "apiVersion": "toolcrib.dev/v1alpha1",
                "kind": "AgentScopeBinding",
                "metadata": {"namespace": "heist", "name": "safecracker"},
                "spec": {
                    "subjects": [{"kind": "ServiceAccount", "name": "safecracker"}],
                    "scopes": ["calculator:use"],
                },
            }
        ],
    )

    subject: str | None = Field(default=None, max_length=512)
    tool: str | None = Field(
        default=None, max_length=512, description="A tool id, or a name that only one has."
    )
    scope: str | None = Field(default=None, max_length=128, description="A scope, without subject and tool.")
    action: Action = Action.CALL
    namespace: str | None = Field(default=None, max_length=253, description="Only tools of this namespace.")
    issuer: str | None = Field(default=None, max_length=512, description="Of an OAuthClient, User or Group.")
    scopes: tuple[str, ...] | None = Field(
        default=None, max_length=64, description="What the token carries; absent: whatever bindings ask for."
    )
    groups: tuple[str, ...] = Field(default=(), max_length=256, description="Further groups of the token.")
    client: str | None = Field(
        default=None, max_length=256, description="The OAuth client of a user's token."
    )
    hidden: bool = Field(default=False, description="The tools that it may not see too, each with why not.")
    bindings: tuple[dict[str, Any], ...] = Field(
        default=(),
        max_length=200,
        description="Bindings as if they were applied; a namespace is named in each.",
    )
    delete: tuple[str, ...] = Field(
        default=(), max_length=200,
        description="Bindings as if they were deleted: Kind/namespace/name, or Kind/name of cluster bindings.",
    )  # fmt: skip
    limit: int = Field(default=500, ge=1, le=5_000)
    cursor: str | None = Field(default=None, max_length=1024)
