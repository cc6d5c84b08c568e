"""Bindings as if they were applied or deleted: the snapshot that would be, from manifests alone.

What the operator knows and a snapshot does not, namespaces' labels and who exists, is refused or assumed: the
command line asks the cluster instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from toolcrib import publishing
from toolcrib.access.subjects import IN_CLUSTER, Tokens, Who, identity_of
from toolcrib.errors import Finding, InvalidManifest
from toolcrib.resources.bindings import AgentScopeBinding, ClusterAgentScopeBinding
from toolcrib.resources.kinds import parse
from toolcrib.snapshot import Snapshot
from toolcrib.wire.publish import Publish, PublishedAccount, PublishedBinding, Removed, Revision

NAME_LABEL = "kubernetes.io/metadata.name"
_ASSUMED = "assumed"
Key = tuple[str, str | None, str]


def proposed(
    snapshot: Snapshot,
    manifests: Sequence[Mapping[str, Any]],
    deletions: Sequence[str],
    tokens: Tokens,
    asked: Iterable[Who] = (),
) -> tuple[Snapshot, frozenset[str]]:
    """The snapshot with `manifests` applied and `deletions` carried out, and the UIDs of what is not applied so.

    Args:
        snapshot: what is in effect.
        manifests: bindings, each with its namespace; an applied one of the same name is replaced and keeps its UID.
        deletions: `Kind/namespace/name`, or `Kind/name` of cluster bindings.
        tokens: knows the cluster's issuer.
        asked: service accounts that exist unless the snapshot knows better, besides those that the manifests name.

    Raises:
        InvalidManifest: a manifest or a deletion is refused; findings name it (`bindings[0].spec.scopes`, `delete[1]`).
    """
    applied = {(b.kind, b.namespace, b.name): b for b in snapshot.bindings.values()}
    findings: list[Finding] = []
    made: dict[Key, PublishedBinding] = {}
    for i, manifest in enumerate(manifests):
        try:
            binding = _published(manifest, snapshot)
            key = (binding.kind, binding.namespace, binding.name)
            if key in made:
                raise InvalidManifest((Finding("metadata.name", f"{binding.ref} appears twice"),))
            made[key] = _as_applied(binding, applied.get(key))
        except InvalidManifest as error:
            findings += (
                Finding(f"bindings[{i}]" + (f".{f.field}" if f.field else ""), f.message, f.hint)
                for f in error.findings
            )
    gone: list[str] = []
    for i, text in enumerate(deletions):
        found = applied.get(key_of(text))
        if found is None:
            findings.append(
                Finding(f"delete[{i}]", f"no binding {text!r} exists", "write Kind/namespace/name")
            )
        else:
            gone.append(found.uid)
    if findings:
        raise InvalidManifest(tuple(findings))
    changed = tuple(b for key, b in made.items() if applied.get(key) != b)
    accounts = _accounts(snapshot, changed, tokens, asked)
    base = snapshot.revision
    to = Revision(epoch=0, seq=0) if base is None else Revision(epoch=base.epoch, seq=base.seq + 1)
    step = Publish(
        base=base, to=to, bindings=changed, accounts=accounts or None, removed=Removed(bindings=tuple(gone))
    )
    return snapshot.apply(step), frozenset(b.uid for b in changed)


def key_of(text: str) -> Key:
    """`Kind/namespace/name` or `Kind/name` in parts."""
    kind, _, rest = text.partition("/")
    namespace, slash, name = rest.rpartition("/")
    return (kind, namespace if slash else None, name)


def _published(manifest: Mapping[str, Any], snapshot: Snapshot) -> PublishedBinding:
    resource = parse(dict(manifest), strict=True)
    if isinstance(resource, AgentScopeBinding):
        if resource.metadata.namespace is None:
            raise InvalidManifest((Finding("metadata.namespace", "required, but missing"),))
        return publishing.binding(resource)
    if not isinstance(resource, ClusterAgentScopeBinding):
        raise InvalidManifest(
            (Finding("kind", f"only bindings can be proposed here, not a {resource.kind}"),)
        )
    selector = resource.spec.namespace_selector
    if selector is None:
        return publishing.binding(resource, namespaces=resource.spec.namespaces)
    if unknown := sorted(selector.keys - {NAME_LABEL}):
        message = f"the registry does not know the label {unknown[0]!r} of namespaces"
        hint = "list namespaces instead, or use `toolcrib access` with a kubeconfig"
        raise InvalidManifest((Finding("spec.namespaceSelector", message, hint),))
    if not selector.keys:
        return publishing.binding(resource, namespaces=None)
    # a namespace without tools decides nothing
    meant = tuple(n for n in sorted(snapshot.namespaces) if selector.matches({NAME_LABEL: n}))
    return publishing.binding(resource, namespaces=meant)


def _as_applied(binding: PublishedBinding, held: PublishedBinding | None) -> PublishedBinding:
    """With the UID and the generation that it would have."""
    if held is None:
        uid = f"proposed:{binding.kind}/{binding.namespace or ''}/{binding.name}"
        return binding.model_copy(update={"uid": uid, "generation": 1})
    same = binding.model_copy(update={"uid": held.uid, "generation": held.generation})
    if same == held:
        return held
    return same.model_copy(update={"generation": held.generation + 1})


def _accounts(
    snapshot: Snapshot, changed: Sequence[PublishedBinding], tokens: Tokens, asked: Iterable[Who]
) -> tuple[PublishedAccount, ...]:
    """Service accounts that no applied binding names, so that nobody has told whether they exist: they do."""
    if snapshot.accounts is None:
        return ()
    named = [w for b in changed for s in b.subjects if (w := Who.of(s)) is not None]
    found = {}
    for who in (*named, *asked):
        if who.kind not in IN_CLUSTER or who.namespace is None:
            continue
        account = PublishedAccount(namespace=who.namespace, name=who.name, uid=_ASSUMED)
        identity = identity_of(who, snapshot, tokens)
        if account.key not in snapshot.accounts and identity and not snapshot.policy.is_gone(identity):
            found[account.key] = account
    return tuple(found.values())
