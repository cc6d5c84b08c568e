"""Whether the admission policies of a cluster are the ones that `crds/` and the chart hold. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from toolcrib.resources import admission

Found = Iterable[Mapping[str, Any]]


def obstacle(found: Found, account: str | None) -> str | None:
    """What is wrong with the policies and their bindings as the cluster has them; None if nothing is.

    Args:
        found: those that are labelled as ours, whatever their names.
        account: the operator's user name; the policies of `crds/`, which know its name alone, will do as well.
    """
    have = {(m["kind"], m["metadata"]["name"]): m.get("spec") or {} for m in found}
    accounts = [None] if account is None else [account, None]
    wanted = [admission.guarding(each) for each in accounts]
    for kind, name in wanted[0]:
        if (kind, name) not in have:
            return f"{kind} {name} is missing"
        at = [differs(specs[kind, name], have[kind, name]) for specs in wanted]
        if None not in at:
            return f"{kind} {name} was altered: {at[0]}"
    return None


_KNOWN = frozenset({
    "apiGroups", "apiVersions", "auditAnnotations", "excludeResourceRules", "expression", "failurePolicy", "matchConditions",
    "matchConstraints", "matchPolicy", "matchResources", "message", "messageExpression", "name", "namespaceSelector",
    "objectSelector", "operations", "paramKind", "paramRef", "policyName", "reason", "resourceNames", "resourceRules",
    "resources", "scope", "validationActions", "validations", "variables",
})  # fmt: skip


def differs(wanted: Any, found: Any, path: str = "spec") -> str | None:
    """Where a spec of the cluster says something else than ours, or None.

    Empty values are absent ones. A field that no API server of today knows is a default of a later one; each that we
    know has to be as we wrote it.
    """
    if wanted and isinstance(wanted, Mapping) and isinstance(found, Mapping):
        for key in sorted({*wanted, *(k for k in found if k in _KNOWN)}):
            at = differs(wanted.get(key), found.get(key), f"{path}.{key}")
            if at is not None:
                return at
        return None
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        pairs = (differs(w, f, f"{path}[{i}]") for i, (w, f) in enumerate(zip(wanted, found, strict=True)))
        return next((at for at in pairs if at is not None), None)
    return None if (wanted or None) == (found or None) else path
