"""Manifests as the operator would judge them once they are applied: all given files together, alone or in a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from toolcrib.errors import Finding
from toolcrib.lint.hidden_text import Hidden
from toolcrib.resources import KINDS
from toolcrib.resources.conditions import ConditionReason
from toolcrib.resources.quantities import Quota
from toolcrib.snapshot import Snapshot
from toolcrib_cli.manifests import FileContent, Loaded
from toolcrib_cli.prediction.outcome import APPLY_REFUSED, predict
from toolcrib_cli.remarks import Remark, remarks
from toolcrib_operator.kinds.binding import BINDINGS
from toolcrib_operator.kinds.namespace import NAMESPACE
from toolcrib_operator.kinds.secret import SECRET, secret_of
from toolcrib_operator.objects import Ref
from toolcrib_operator.settings import LoopSettings
from toolcrib_operator.status.preview import Preview
from toolcrib_operator.world import World

NAMESPACE_NOT_FOUND = "NamespaceNotFound"
"""Why an object cannot be applied: an API server refuses what is in a namespace that does not exist."""
_TOLD_ALONE = frozenset({ConditionReason.SCHEMA_UNSAFE, ConditionReason.HIDDEN_TEXT, ConditionReason.INVALID})
"""Refusals that reading the file has told of already."""
_NEED_TOOLS = frozenset({ConditionReason.MATCHES_NOTHING, ConditionReason.DENY_NEVER_FIRES})
"""What is said of a binding because there is no such tool."""
_NEED_SECRET = frozenset({ConditionReason.CREDENTIAL_MISSING, ConditionReason.CREDENTIAL_NOT_ALLOWED})


def in_cluster(
    world: World,
    contents: Iterable[FileContent],
    *,
    trusted: Sequence[str] = (),
    hidden: Hidden = Hidden.REFUSE,
    now: float,
) -> list[Remark]:
    """Everything that the operator would object to, or call odd, in the order of the files.

    Args:
        world: what the cluster holds, its service accounts included and its Secrets not; it is changed.
        contents: files that are valid in themselves; those that are refused are left out.
        trusted: namespace labels that the operator trusts; none: its default.
        hidden: what it does with hidden text.
        now: when they would be applied, in seconds since the epoch.
    """
    contents = list(contents)
    usable = [content for content in contents if not content.refused]
    brought = {item.key for content in contents for item in content.objects}
    trusted = trusted or LoopSettings.trusted_namespace_labels
    after = predict(world, usable, trusted=trusted, hidden=hidden)
    preview = Preview(world, after.assessor, after.after)
    refused = {found.ref: found for found in after.not_used if found.reason == APPLY_REFUSED}
    found: list[Remark] = []
    for item in _ours(usable):
        if (refusal := refused.get(item.named)) is not None:
            found.append(Remark(item, refusal.reason, Finding("", refusal.message), used=False))
        elif item.namespace and not _there(world, item.namespace, brought):
            message = f"{NAMESPACE_NOT_FOUND}: there is no namespace {item.namespace} in the cluster, nor in these files"
            told = Finding("metadata.namespace", message)
            found.append(Remark(item, NAMESPACE_NOT_FOUND, told, used=False))
        else:
            secrets = _brings_secret(item, brought)
            found += (r for r in _remarks(item, preview, now) if secrets or r.reason not in _NEED_SECRET)
    return found


def alone(
    contents: Iterable[FileContent],
    *,
    trusted: Sequence[str] = (),
    hidden: Hidden = Hidden.REFUSE,
    now: float,
) -> list[Remark]:
    """The same of files as if they were all that there is.

    What only the cluster can know is left out: a binding's reach where no tool of its namespaces is given, and a
    ServiceAccount where none of its namespace is.
    """
    usable = [content for content in contents if not content.refused]
    world = World(required=())
    trusted = trusted or LoopSettings.trusted_namespace_labels
    after = predict(world, usable, trusted=trusted, accounts=False, hidden=hidden, quota=Quota())
    preview = Preview(world, after.assessor, after.after)
    spaces = {tool.namespace for tool in after.after.tools.values()}
    return [
        remark
        for item in _ours(usable)
        for remark in _remarks(item, preview, now)
        if remark.reason not in _NEED_TOOLS or _reaches(item, after.after, spaces)
    ]


def _ours(contents: Iterable[FileContent]) -> Iterable[Loaded]:
    return (item for content in contents for item in content.objects if item.kind in KINDS)


def _remarks(item: Loaded, preview: Preview, now: float) -> Iterable[Remark]:
    told = preview.told(Ref(item.kind, f"{item.namespace}/{item.name}" if item.namespace else item.name), now)
    found = () if told is None else remarks(item, told)
    return (remark for remark in found if remark.used or remark.reason not in _TOLD_ALONE)


def _reaches(item: Loaded, after: Snapshot, spaces: set[str]) -> bool:
    """Whether one of the namespaces `spaces` is within a binding's reach."""
    binding = next(b for b in after.bindings.values() if (b.kind, b.namespace, b.name) == item.key)
    return bool(spaces) if binding.namespaces is None else not spaces.isdisjoint(binding.namespaces)


def _brings_secret(item: Loaded, brought: set[tuple[str, str | None, str]]) -> bool:
    """Whether the files have the Secret that a tool's backend needs: those of the cluster are not read."""
    secret = None if item.kind in BINDINGS else secret_of(item.resource)  # type: ignore[arg-type]
    return secret is not None and (SECRET, secret.namespace, secret.name) in brought


def _there(world: World, namespace: str, brought: set[tuple[str, str | None, str]]) -> bool:
    return (NAMESPACE, None, namespace) in brought or world.get(Ref(NAMESPACE, namespace)) is not None
