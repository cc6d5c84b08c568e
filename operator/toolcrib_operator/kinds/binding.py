"""The verdict on a binding: its territory, its dates, and what it reaches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from toolcrib import authorizer, publishing
from toolcrib.names import is_reserved_scope
from toolcrib.resources.bindings import AgentScopeBinding, ClusterAgentScopeBinding, LabelSelector
from toolcrib.resources.conditions import ConditionReason
from toolcrib.snapshot import Snapshot
from toolcrib.wire.publish import PublishedBinding, PublishedTool
from toolcrib_operator.kinds.tool import invalid
from toolcrib_operator.kinds.verdicts import BindingVerdict, Cause
from toolcrib_operator.world import Entry


def assess_binding(
    entry: Entry, *, namespaces: Mapping[str, Mapping[str, str]], trusted: Iterable[str]
) -> BindingVerdict:
    """Whether a binding is used, and what is published of it.

    Args:
        entry: the object.
        namespaces: every namespace with its labels.
        trusted: label keys that a namespaceSelector may use. Whoever may label a namespace could otherwise pull
            its tools into somebody's grant.
    """
    binding = entry.resource
    if isinstance(binding, AgentScopeBinding):
        return BindingVerdict(publishing.binding(binding))
    if not isinstance(binding, ClusterAgentScopeBinding):
        return BindingVerdict(None, invalid(entry.findings))
    selector = binding.spec.namespace_selector
    if selector is None:
        return BindingVerdict(publishing.binding(binding, namespaces=binding.spec.namespaces))
    known = frozenset(trusted)
    if untrusted := sorted(selector.keys - known):
        allowed = ", ".join(sorted(known)) or "none"
        message = f"spec.namespaceSelector: the operator does not trust the label {untrusted[0]!r} (trusted: {allowed})"
        # it grants nothing, but what it denies stays denied: in doubt everywhere (a deny holds while its object exists)
        denied = publishing.binding(binding, namespaces=None).model_copy(update={"scopes": (), "allow": None})
        return BindingVerdict(
            denied if denied.denies else None, Cause(ConditionReason.UNTRUSTED_LABEL, message)
        )
    return BindingVerdict(publishing.binding(binding, namespaces=territory(selector, namespaces)))


def territory(selector: LabelSelector, namespaces: Mapping[str, Mapping[str, str]]) -> tuple[str, ...] | None:
    """The namespaces that a selector means; None (every one) for the empty selector."""
    if not selector.keys:
        return None
    return tuple(sorted(name for name, labels in namespaces.items() if selector.matches(dict(labels))))


def uses_selector(entry: Entry) -> bool:
    """Whether a change of some namespace may change what is published."""
    binding = entry.resource
    return isinstance(binding, ClusterAgentScopeBinding) and binding.spec.namespace_selector is not None


def wants_tools(binding: PublishedBinding) -> bool:
    """Whether it is there for tools; not if all that it grants are powers of the registry (`registry:*`), which no tool carries."""
    return not binding.scopes or not all(map(is_reserved_scope, binding.scopes))


def matched_tools(binding: PublishedBinding, snapshot: Snapshot) -> int:
    """How many active tools are within reach: those it grants, or those it denies where it only denies."""
    return len(matched_ids(binding, snapshot))


def matched_ids(binding: PublishedBinding, snapshot: Snapshot) -> list[str]:
    """The ids of those tools."""
    tools = snapshot.tools
    reaches = authorizer.matcher(binding)
    if not binding.scopes:
        return [tool_id for tool_id, tool in tools.items() if reaches(tool)]
    territory = None if binding.namespaces is None else frozenset(binding.namespaces)
    candidates = snapshot.candidates(binding.scopes, territory)
    if binding.servers is None and binding.allow is None and not binding.denies:
        return [i for i in candidates if tools[i].active]  # nothing else narrows it: a hundred times as fast
    return [i for i in candidates if reaches(tools[i])]


class Territories:
    """All tools by namespace, sorted out once a snapshot: many bindings ask for the tools of one namespace."""

    def __init__(self) -> None:
        self._of: Snapshot | None = None
        self._tools: defaultdict[str, list[PublishedTool]] = defaultdict(list)

    def tools_of(self, binding: PublishedBinding, snapshot: Snapshot) -> list[PublishedTool]:
        """Every tool of a binding's territory, whatever its state; none where nothing asks for one."""
        if not binding.denies:
            return []
        if binding.namespaces is None:
            return list(snapshot.tools.values())
        if self._of is not snapshot:
            self._of, self._tools = snapshot, defaultdict(list)
            for tool in snapshot.tools.values():
                self._tools[tool.namespace].append(tool)
        return [tool for namespace in binding.namespaces for tool in self._tools.get(namespace, ())]
