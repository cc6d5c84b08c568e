"""What a cluster shows of an installation: read with the rights of a kubeconfig. Nothing is written, no Secret is read."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from toolcrib.resources import GROUP, KINDS, VERSION
from toolcrib_cli.cluster import connect
from toolcrib_cli.doctor.facts import SETTINGS, Facts, Object, Place
from toolcrib_cli.errors import CliError, Exit
from toolcrib_operator.adapters.kube import Kube, Refused
from toolcrib_operator.errors import ClusterUnavailable, Gone, OperatorError

_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_OURS = {"labelSelector": "app.kubernetes.io/part-of=toolcrib"}
_WHOLE: Mapping[str, str] = {
    **{kind: f"/apis/{GROUP}/{VERSION}/{known.plural}" for kind, known in KINDS.items()},
    "ClusterRole": f"{_RBAC}/clusterroles",
    "ClusterRoleBinding": f"{_RBAC}/clusterrolebindings",
    "Role": f"{_RBAC}/roles",
    "RoleBinding": f"{_RBAC}/rolebindings",
    "ValidatingAdmissionPolicy": f"{_ADMISSION}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{_ADMISSION}/validatingadmissionpolicybindings",
}
"""Kinds that are read in the whole cluster."""
_WITHIN: Mapping[str, str] = {
    "Service": "/api/v1/namespaces/{0}/services",
    "Pod": "/api/v1/namespaces/{0}/pods",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{0}/networkpolicies",
}
"""Kinds that are read in the namespaces of Services behind Tools, and in our own."""
_OWN: Mapping[str, str] = {
    "ConfigMap": "/api/v1/namespaces/{0}/configmaps",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{0}/poddisruptionbudgets",
    "Ingress": "/apis/networking.k8s.io/v1/namespaces/{0}/ingresses",
}
"""Kinds that are read in our own namespace."""
_PAGE = "500"
_Found = list[Object] | str


def look(*, kubeconfig: str | None = None, context: str | None = None) -> Facts:
    """What the cluster shows. What one may not read is noted as such.

    Raises:
        CliError: there is no usable configuration, or no API server answers, or it accepts no credentials.
    """
    with contextlib.closing(connect(kubeconfig, context)) as kube:
        return asyncio.run(_look(kube))


async def _look(kube: Kube) -> Facts:
    try:
        await kube.request("GET", "/version")
    except Refused as error:
        message = "the API server does not accept your credentials" if error.status == 401 else str(error)
        raise CliError(message, code=Exit.USAGE) from error
    except OperatorError as error:
        hint = "is it the right cluster? Specify --kubeconfig FILE or --context NAME"
        raise CliError(str(error), hint=hint, code=Exit.USAGE) from error
    objects: dict[str, _Found] = {}
    workloads = [f"/apis/apps/v1/{plural}" for plural in ("deployments", "statefulsets")]
    found = await asyncio.gather(
        *(_list(kube, kind, path, {}) for kind, path in _WHOLE.items()),
        *(_list(kube, "Workload", path, _OURS) for path in workloads),
    )
    objects = dict(zip(_WHOLE, found, strict=False))
    objects["Workload"] = _together(found[len(_WHOLE) :])
    own = {str(w["metadata"]["namespace"]) for w in _given(objects["Workload"])}
    namespaces = own | {namespace for t in _given(objects["Tool"]) if (namespace := _of_service(t))}
    for kinds, where in ((_WITHIN, namespaces), (_OWN, own)):
        for kind, path in kinds.items():
            parts = [_list(kube, kind, path.format(quote(namespace)), {}) for namespace in sorted(where)]
            objects[kind] = _together(await asyncio.gather(*parts))
    return Facts(Place.CLUSTER, objects, time.time())


async def _list(kube: Kube, kind: str, path: str, query: Mapping[str, str]) -> _Found:
    """All objects of a collection, without managed fields; or why it cannot be read."""
    found: list[Object] = []
    token = ""
    while True:
        page = {**query, "limit": _PAGE, **({"continue": token} if token else {})}
        try:
            answer = await kube.request("GET", path, query=page)
        except Gone:
            return "the API server does not know them"
        except Refused as error:
            if error.status == 403:
                return f"you may not list them ({path})"
            return str(error)
        except ClusterUnavailable as error:
            return str(error)
        found += [_kept(kind, item) for item in answer.get("items") or ()]
        token = answer["metadata"].get("continue") or ""
        if not token:
            return found


def _kept(kind: str, item: dict[str, Any]) -> Object:
    """An item of a list, which lacks its kind; of a ConfigMap our settings alone, of a Tool no schemas."""
    item["metadata"].pop("managedFields", None)
    if kind == "ConfigMap":
        item["data"] = {k: v for k, v in (item.get("data") or {}).items() if k == SETTINGS}
    if kind == "Tool":
        item["spec"] = {k: v for k, v in item["spec"].items() if k not in ("inputSchema", "outputSchema")}
    return item if kind == "Workload" else {**item, "kind": kind}


def _together(parts: list[_Found]) -> _Found:
    """Several lists as one; one that cannot be read makes the whole unreadable."""
    for part in parts:
        if isinstance(part, str):
            return part
    return [item for part in parts for item in part if not isinstance(item, str)]


def _given(found: _Found) -> list[Object]:
    return [] if isinstance(found, str) else found


def _of_service(tool: Object) -> str | None:
    http = ((tool.get("spec") or {}).get("backend") or {}).get("http") or {}
    return str(tool["metadata"]["namespace"]) if http.get("service") else None
