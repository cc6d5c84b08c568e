"""Bindings and suspended Agents as replicas know them: subjects with their namespaces, dates as numbers."""

from __future__ import annotations

from toolcrib.resources import durations
from toolcrib.resources.agents import Agent
from toolcrib.resources.bindings import AgentScopeBinding, ClusterAgentScopeBinding, Subject, SubjectKind
from toolcrib.wire.publish import PublishedBinding, PublishedLimits, PublishedSubject


def binding(
    resource: AgentScopeBinding | ClusterAgentScopeBinding, *, namespaces: tuple[str, ...] | None = None
) -> PublishedBinding:
    """What a binding publishes.

    Args:
        resource: the object.
        namespaces: the territory of a cluster binding, its selector resolved; None means every namespace.
            A namespaced binding's territory is its own namespace, whatever is passed.
    """
    spec, meta = resource.spec, resource.metadata
    home, lists = None, False
    if isinstance(resource, AgentScopeBinding):
        home = meta.namespace or "default"
        namespaces = (home,)
    else:
        lists = resource.spec.namespaces is not None
    return PublishedBinding(
        uid=meta.uid or f"manifest:{resource.kind}:{home or ''}/{meta.name}",
        generation=meta.generation,
        kind=resource.kind,
        namespace=home,
        name=meta.name,
        subjects=tuple(_subject(s, home) for s in spec.subjects),
        namespaces=namespaces,
        lists_namespaces=lists,
        scopes=spec.scopes or (),
        allow=None if spec.tools is None else spec.tools.allow,
        deny=() if spec.tools is None else spec.tools.deny or (),
        deny_scopes=() if spec.tools is None else spec.tools.deny_scopes or (),
        servers=spec.servers,
        not_before=None if spec.not_before is None else durations.instant(spec.not_before),
        expires_at=None if spec.expires_at is None else durations.instant(spec.expires_at),
        limits=None
        if spec.limits is None
        else PublishedLimits(
            per_minute=spec.limits.calls_per_minute,
            per_day=spec.limits.calls_per_day,
            concurrent=spec.limits.max_concurrent,
        ),
    )


def suspension(agent: Agent) -> PublishedBinding:
    """What a suspended Agent publishes: that its identities get nothing, in the form of a deny of everything."""
    meta = agent.metadata
    home = meta.namespace or "default"
    account = PublishedSubject(kind=SubjectKind.SERVICE_ACCOUNT, namespace=home, name=agent.service_account)
    return PublishedBinding(
        uid=meta.uid or f"manifest:Agent:{home}/{meta.name}",
        generation=meta.generation,
        kind="Agent",
        namespace=home,
        name=meta.name,
        subjects=(account, *(_subject(s, home) for s in agent.spec.subjects or ())),
        namespaces=None,
        deny=("*",),
        suspends=True,
    )


def _subject(subject: Subject, home: str | None) -> PublishedSubject:
    """An Agent is the service account that its pods run as: the one of its own name."""
    in_cluster = subject.kind in (SubjectKind.SERVICE_ACCOUNT, SubjectKind.AGENT)
    return PublishedSubject(
        kind=subject.kind,
        namespace=subject.namespace or home if in_cluster else None,
        name=subject.name,
        issuer=subject.issuer,
        client_id=subject.client_id,
    )
