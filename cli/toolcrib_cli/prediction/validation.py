"""Manifests against what a cluster holds: what the operator would say of them once they are applied."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from toolcrib.errors import Finding
from toolcrib.resources.conditions import MEANINGS, ConditionReason
from toolcrib.resources.tools import Tool
from toolcrib_cli.manifests import FileContent
from toolcrib_cli.prediction.outcome import APPLY_REFUSED, predict
from toolcrib_cli.remarks import Expected, hard_to_find
from toolcrib_operator.kinds.accounts import SERVICE_ACCOUNT, is_there
from toolcrib_operator.kinds.binding import BINDINGS
from toolcrib_operator.kinds.namespace import NAMESPACE
from toolcrib_operator.kinds.questions import questions
from toolcrib_operator.kinds.reach import Territories, matched_tools, wants_tools
from toolcrib_operator.objects import Ref
from toolcrib_operator.settings import LoopSettings
from toolcrib_operator.world import World

NAMESPACE_NOT_FOUND = "NamespaceNotFound"
"""Why an object cannot be applied: an API server refuses what is in a namespace that does not exist."""


def expected(
    world: World, contents: Iterable[FileContent], *, trusted: Sequence[str], now: float
) -> list[Expected]:
    """Everything that the operator would object to, or call odd, in the order of the files; last what is hard to find.

    Args:
        world: what the cluster holds, its service accounts included; it is changed.
        contents: files that are valid in themselves; those that are refused are left out.
        trusted: namespace labels that the operator trusts; none: its default.
        now: when they would be applied, in seconds since the epoch.
    """
    contents = list(contents)
    brought = {item.name for content in contents for item in content.objects if item.kind == NAMESPACE}
    usable = [content for content in contents if not content.refused]
    after = predict(world, usable, trusted=trusted or LoopSettings.trusted_namespace_labels)
    refusals = {found.ref: found for found in after.not_used}
    bindings = {(b.kind, b.namespace, b.name): b for b in after.after.bindings.values()}
    territories = Territories()
    found: list[Expected] = []
    for item in (item for content in usable for item in content.objects):
        refusal = refusals.get(item.named)
        if refusal is not None and refusal.reason == APPLY_REFUSED:
            found.append(Expected(item, refusal.reason, Finding("", refusal.message), used=False))
        elif item.namespace and item.namespace not in brought and not _there(world, item.namespace):
            message = f"{NAMESPACE_NOT_FOUND}: there is no namespace {item.namespace} in the cluster, nor in these files"
            told = Finding("metadata.namespace", message)
            found.append(Expected(item, NAMESPACE_NOT_FOUND, told, used=False))
        elif refusal is not None and refusal.reason in _FIELDS:
            field = _FIELDS[refusal.reason]
            message = refusal.message.removeprefix(f"{field}: ")
            told = Finding(field, f"Accepted=False/{refusal.reason}: {message}")
            found.append(Expected(item, refusal.reason, told, used=False))
        elif item.kind in BINDINGS and (binding := bindings.get(item.key)) is not None:
            tools = territories.tools_of(binding, after.after)
            odd = questions(binding, tools, exists=_exists(world), applied=now)
            if wants_tools(binding) and matched_tools(binding, after.after) == 0:
                reason = ConditionReason.MATCHES_NOTHING
                found.append(Expected(item, reason.value, Finding("spec", f"{reason}: {MEANINGS[reason]}")))
            found += [
                Expected(item, q.reason.value, Finding(q.field, f"{q.reason}: {q.message}")) for q in odd
            ]
    there = (entry.resource for entry in world.all("Tool"))
    return found + hard_to_find(usable, [tool for tool in there if isinstance(tool, Tool)])


_FIELDS = {
    ConditionReason.NAME_CONFLICT.value: "spec.name",
    ConditionReason.UNTRUSTED_LABEL.value: "spec.namespaceSelector",
}
"""Refusals that need the cluster, and what they are about; the others are told without one."""


def _there(world: World, namespace: str) -> bool:
    return world.get(Ref(NAMESPACE, namespace)) is not None


def _exists(world: World) -> Callable[[str], bool]:
    def exists(key: str) -> bool:
        account = world.get(Ref(SERVICE_ACCOUNT, key))
        return account is not None and is_there(account)

    return exists
