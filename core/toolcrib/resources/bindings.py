"""AgentScopeBinding and ClusterAgentScopeBinding: who gets which scopes over which tools, and when."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from toolcrib import names
from toolcrib.resources import durations
from toolcrib.resources.conditions import Conditions
from toolcrib.resources.meta import DnsLabel, ListOf, Model, ObjectMeta, Rule, Scope, ServerName

Instant = Annotated[
    str,
    Field(pattern=durations.INSTANT, max_length=64, json_schema_extra={"format": "date-time"}),
    AfterValidator(durations.check_instant),
]
OPERATOR = r"^(In|NotIn|Exists|DoesNotExist)$"
"""Of a requirement in a label selector."""


class SubjectKind(StrEnum):
    """What a subject is; each is matched by issuer and claim, never by a name alone."""

    SERVICE_ACCOUNT = "ServiceAccount"
    AGENT = "Agent"
    OAUTH_CLIENT = "OAuthClient"
    USER = "User"
    GROUP = "Group"


_IN_CLUSTER = (SubjectKind.SERVICE_ACCOUNT, SubjectKind.AGENT)


class Subject(Model):
    """Somebody who gets the grant."""

    kind: SubjectKind = Field(strict=False, description="ServiceAccount, Agent, OAuthClient, User or Group.")
    namespace: DnsLabel | None = Field(
        default=None, description="Namespace of a ServiceAccount or Agent; the binding's own if absent."
    )
    name: Annotated[str, Field(min_length=1, max_length=253)] | None = Field(
        default=None, description="Name of a ServiceAccount, Agent, User or Group."
    )
    issuer: Annotated[str, Field(min_length=1, max_length=512)] | None = Field(
        default=None, description="The `iss` that vouches for an OAuthClient, User or Group."
    )
    client_id: Annotated[str, Field(min_length=1, max_length=256)] | None = Field(
        default=None, description="Client id of an OAuthClient."
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!(self.kind in ['ServiceAccount', 'Agent']) || (has(self.name) && !has(self.issuer) && !has(self.clientId))",
            "a ServiceAccount or Agent needs name (and may have namespace); remove issuer and clientId",
            lambda s: (
                s.kind not in _IN_CLUSTER or (s.name is not None and s.issuer is None and s.client_id is None)
            ),
        ),
        Rule(
            "self.kind != 'OAuthClient' || (has(self.issuer) && has(self.clientId) && !has(self.name) && !has(self.namespace))",
            "an OAuthClient needs issuer and clientId; remove name and namespace",
            lambda s: (
                s.kind is not SubjectKind.OAUTH_CLIENT
                or (
                    s.issuer is not None
                    and s.client_id is not None
                    and s.name is None
                    and s.namespace is None
                )
            ),
        ),
        Rule(
            "!(self.kind in ['User', 'Group']) || (has(self.issuer) && has(self.name) && !has(self.clientId) && !has(self.namespace))",
            "a User or Group needs issuer and name; remove clientId and namespace",
            lambda s: (
                s.kind not in (SubjectKind.USER, SubjectKind.GROUP)
                or (
                    s.issuer is not None
                    and s.name is not None
                    and s.client_id is None
                    and s.namespace is None
                )
            ),
        ),
    )

    @property
    def tenant(self) -> str | None:
        """Namespace of the subject, or its issuer if it has none (`Identity.tenant`)."""
        return self.namespace or self.issuer


Pattern = Annotated[str, Field(pattern=names.PATTERN, max_length=192)]
ClusterPattern = Annotated[str, Field(pattern=names.CLUSTER_PATTERN, max_length=256)]


class ToolPatterns(Model):
    """Which tools of the binding's reach are meant, by name or, for denials, by scope."""

    allow: Annotated[tuple[Pattern, ...], ListOf(1, 64)] | None = Field(
        default=None, description="Grants only tools that match one of these; absent: no restriction."
    )
    deny: Annotated[tuple[Pattern, ...], ListOf(1, 64)] | None = Field(
        default=None,
        description="Tools that match one of these are denied, even if other bindings grant them.",
    )
    deny_scopes: Annotated[tuple[Scope, ...], ListOf(1, 16)] | None = Field(
        default=None,
        description="Tools that carry one of these scopes are denied, even if other bindings grant them. A tool escapes"
        " only by giving up the scope, and with it every grant of it.",
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.allow) || has(self.deny) || has(self.denyScopes)",
            "set allow, deny or denyScopes, or leave tools out",
            lambda t: t.allow is not None or t.denies,
        ),
        Rule(
            "!has(self.denyScopes) || self.denyScopes.all(s, !s.lowerAscii().startsWith('registry:'))",
            "denyScopes cannot hold registry:* scopes, since no Tool carries one; delete the binding that grants the power instead",
            lambda t: not any(map(names.is_reserved_scope, t.deny_scopes or ())),
        ),
    )

    @property
    def denies(self) -> bool:
        """Whether it denies anything."""
        return self.deny is not None or self.deny_scopes is not None


class ClusterToolPatterns(ToolPatterns):
    """The same for cluster bindings, where a server is `namespace/server`."""

    allow: Annotated[tuple[ClusterPattern, ...], ListOf(1, 64)] | None = Field(
        default=None, description="Grants only tools that match one of these; absent: no restriction."
    )
    deny: Annotated[tuple[ClusterPattern, ...], ListOf(1, 64)] | None = Field(
        default=None,
        description="Tools that match one of these are denied, even if other bindings grant them.",
    )


class CallLimits(Model):
    """How many calls this grant allows: counted for each binding, issuer and subject, over all replicas."""

    calls_per_minute: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        default=None, description="Calls in any 60 seconds."
    )
    calls_per_day: Annotated[int, Field(ge=1, le=100_000_000)] | None = Field(
        default=None, description="Calls in any 24 hours."
    )
    max_concurrent: Annotated[int, Field(ge=1, le=10_000)] | None = Field(
        default=None, description="Calls in progress at one time."
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.callsPerMinute) || has(self.callsPerDay) || has(self.maxConcurrent)",
            "set callsPerMinute, callsPerDay or maxConcurrent, or leave limits out",
            lambda c: (
                c.calls_per_minute is not None or c.calls_per_day is not None or c.max_concurrent is not None
            ),
        ),
    )


_SHARED_RULES = (
    Rule(
        "has(self.scopes) || !has(self.limits)",
        "limits need a grant: set scopes too",
        lambda b: b.scopes is not None or b.limits is None,
    ),
    Rule(
        "has(self.scopes) || (has(self.tools) && (has(self.tools.deny) || has(self.tools.denyScopes)))",
        "a binding grants scopes or denies tools: set scopes, or tools.deny, or tools.denyScopes",
        lambda b: b.scopes is not None or (b.tools is not None and b.tools.denies),
    ),
    Rule(
        "has(self.scopes) || !has(self.tools) || !has(self.tools.allow)",
        "tools.allow narrows a grant: set scopes too",
        lambda b: b.scopes is not None or b.tools is None or b.tools.allow is None,
    ),
    Rule(
        "!has(self.notBefore) || !has(self.expiresAt) || timestamp(self.expiresAt) > timestamp(self.notBefore)",
        "expiresAt must be later than notBefore",
        lambda b: (
            b.not_before is None
            or b.expires_at is None
            or durations.instant(b.expires_at) > durations.instant(b.not_before)
        ),
    ),
)


class BindingSpec(Model):
    """A grant over the tools of the binding's own namespace."""

    subjects: Annotated[tuple[Subject, ...], ListOf(1, 16, "atomic")] = Field(
        description="Who gets the grant, or is denied."
    )
    scopes: Annotated[tuple[Scope, ...], ListOf(1, 16)] | None = Field(
        default=None, description="The scopes granted; absent in a binding that only denies."
    )
    tools: ToolPatterns | None = Field(
        default=None, description="Narrows the grant to tools by name, and denies tools by name or scope."
    )
    servers: Annotated[tuple[ServerName, ...], ListOf(1, 32)] | None = Field(
        default=None, description="Grants only tools of these servers; absent: no restriction."
    )
    not_before: Instant | None = Field(default=None, description="When the grant starts.")
    expires_at: Instant | None = Field(default=None, description="When the grant ends.")
    limits: CallLimits | None = Field(
        default=None,
        description="How many calls each subject may make; absent: only the registry's own limit of calls at one time.",
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        *_SHARED_RULES,
        Rule(
            "!has(self.scopes) || self.scopes.all(s, !s.lowerAscii().startsWith('registry:'))",
            "registry:* scopes are powers of the registry; grant them with a ClusterAgentScopeBinding",
            lambda b: b.scopes is None or not any(names.is_reserved_scope(s) for s in b.scopes),
        ),
    )


class LabelSelectorRequirement(Model):
    """One expression of a label selector."""

    key: str = Field(min_length=1, max_length=317, description="Label key.")
    operator: str = Field(
        json_schema_extra={"enum": ["In", "NotIn", "Exists", "DoesNotExist"]},
        pattern=OPERATOR,
        description="In, NotIn, Exists or DoesNotExist.",
    )
    values: Annotated[tuple[Annotated[str, Field(max_length=63)], ...], ListOf(1, 32, "atomic")] | None = (
        Field(default=None, description="Values for In and NotIn.")
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "(self.operator in ['In', 'NotIn']) == has(self.values)",
            "set values with the operators In and NotIn, and with no others",
            lambda r: (r.operator in ("In", "NotIn")) == (r.values is not None),
        ),
    )


# `team: null` must not widen a selector: the API server keeps a nullable value and the rule below refuses it;
# client-side `kubectl apply` drops it by itself, and then at least one label must be left
LabelValue = Annotated[str, Field(max_length=63, json_schema_extra={"nullable": True})]


class LabelSelector(Model):
    """Namespaces by label; an empty selector means every namespace."""

    match_labels: dict[str, LabelValue] | None = Field(
        default=None, min_length=1, max_length=16, description="Labels that must have these values."
    )
    match_expressions: Annotated[tuple[LabelSelectorRequirement, ...], ListOf(1, 16, "atomic")] | None = (
        Field(default=None, description="Label expressions; all must match.")
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.matchLabels) || self.matchLabels.all(k, dyn(self.matchLabels[k]) != null)",
            "a label in matchLabels has no value: set it, or use matchExpressions with Exists",
        ),
    )

    def matches(self, labels: dict[str, str]) -> bool:
        """Whether an object with `labels` is selected (Kubernetes' semantics)."""
        for key, value in (self.match_labels or {}).items():
            if labels.get(key) != value:
                return False
        for want in self.match_expressions or ():
            has = want.key in labels
            among = has and labels[want.key] in (want.values or ())
            holds = {"In": among, "NotIn": not among, "Exists": has, "DoesNotExist": not has}[want.operator]
            if not holds:
                return False
        return True

    @property
    def keys(self) -> frozenset[str]:
        """Every label key the selector reads."""
        return frozenset(self.match_labels or {}) | {e.key for e in self.match_expressions or ()}


class ClusterBindingSpec(Model):
    """A grant over the tools of many namespaces."""

    subjects: Annotated[tuple[Subject, ...], ListOf(1, 16, "atomic")] = Field(
        description="Who gets the grant, or is denied."
    )
    namespaces: Annotated[tuple[DnsLabel, ...], ListOf(1, 64)] | None = Field(
        default=None, description="The namespaces whose tools are meant."
    )
    namespace_selector: LabelSelector | None = Field(
        default=None,
        description="The namespaces by label; {} selects every namespace. Only labels that the operator trusts.",
    )
    scopes: Annotated[tuple[Scope, ...], ListOf(1, 16)] | None = Field(
        default=None, description="The scopes granted; absent in a binding that only denies."
    )
    tools: ClusterToolPatterns | None = Field(
        default=None, description="Narrows the grant to tools by name, and denies tools by name or scope."
    )
    servers: (
        Annotated[
            tuple[Annotated[str, Field(pattern=names.CLUSTER_SERVER, max_length=127)], ...], ListOf(1, 32)
        ]
        | None
    ) = Field(
        default=None,
        description="Grants only tools of these servers, as namespace/server; absent: no restriction.",
    )
    not_before: Instant | None = Field(default=None, description="When the grant starts.")
    expires_at: Instant | None = Field(default=None, description="When the grant ends.")
    limits: CallLimits | None = Field(
        default=None,
        description="How many calls each subject may make; absent: only the registry's own limit of calls at one time.",
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        *_SHARED_RULES,
        Rule(
            "has(self.namespaces) != has(self.namespaceSelector)",
            "set either namespaces or namespaceSelector ({} selects every namespace)",
            lambda b: (b.namespaces is None) != (b.namespace_selector is None),
        ),
        Rule(
            "self.subjects.all(s, !(s.kind in ['ServiceAccount', 'Agent']) || has(s.namespace))",
            "a ServiceAccount or Agent needs a namespace in a cluster binding",
            lambda b: all(s.kind not in _IN_CLUSTER or s.namespace is not None for s in b.subjects),
        ),
    )


class BindingStatus(Model):
    """What the operator observed."""

    observed_generation: int | None = Field(
        default=None, ge=0, description="The generation that the operator assessed."
    )
    matched_tools: int | None = Field(
        default=None, ge=0, description="Tools within reach, as of a minute ago at most."
    )
    fired_denials: (
        Annotated[tuple[Annotated[str, Field(max_length=512)], ...], ListOf(0, 128, "atomic")] | None
    ) = Field(
        default=None,
        description="Entries of `tools` that have denied a tool since the last edit: `deny/PATTERN`, `denyScopes/SCOPE`.",
    )
    escaped_tools: (
        Annotated[tuple[Annotated[str, Field(max_length=320)], ...], ListOf(0, 16, "atomic")] | None
    ) = Field(
        default=None,
        description="Tools that were denied since the last edit and no longer are; at most 16.",
    )
    policies_seen: Annotated[str, Field(max_length=64)] | None = Field(
        default=None,
        description="Set while the binding is pending (AdmissionPolicyUnread): the admission policies that the operator"
        " had read last; empty: none.",
    )
    conditions: Conditions = Field(
        default=(),
        description="Ready, Accepted, Propagated, Expired, MatchesNothing, Questionable; DenyWeakened where it denies.",
    )


class AgentScopeBinding(Model):
    """An AgentScopeBinding object."""

    api_version: str = ""
    kind: str = "AgentScopeBinding"
    metadata: ObjectMeta = Field(strict=False)
    spec: BindingSpec
    status: BindingStatus | None = None


class ClusterAgentScopeBinding(Model):
    """A ClusterAgentScopeBinding object."""

    api_version: str = ""
    kind: str = "ClusterAgentScopeBinding"
    metadata: ObjectMeta = Field(strict=False)
    spec: ClusterBindingSpec
    status: BindingStatus | None = None
