"""Approvals in a cluster, with the rights of a kubeconfig: who may write them is checked at admission."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolcrib.resources.tools import REJECTED_DIGEST, REJECTED_REASON
from toolcrib_cli import kube_requests
from toolcrib_cli.approving.shown import Shown, candidates, scanner_of, shown
from toolcrib_cli.approving.source import key_of
from toolcrib_cli.kube_requests import Hints
from toolcrib_operator.adapters.kube import APPLY_PATCH, MERGE_PATCH, Kube

_CONFLICT = (
    "another field manager holds approvedDigest: write it there (-o yaml prints it), or take it over with "
    "--force-conflicts. If the object was recreated, look at it again"
)


class ClusterTools:
    """Those of a cluster, with the rights of a kubeconfig."""

    def __init__(self, kube: Kube, *, field_manager: str, force: bool = False) -> None:
        self._kube = kube
        self._manager, self._force = field_manager, force

    def tools(self, namespace: str | None) -> list[Shown]:
        """As `Source`."""
        servers = {key_of(each): each for each in kube_requests.listed(self._kube, "ToolServer", namespace)}
        bodies = kube_requests.listed(self._kube, "Tool", namespace)
        scanner = scanner_of(bodies)
        found = [each for body in bodies if (each := shown(body, servers, scanner)) is not None]
        found += candidates(kube_requests.listed(self._kube, "ToolCanary", namespace), bodies, servers)
        return sorted(found, key=lambda each: each.key)

    def approve(self, tool: Shown) -> None:
        """As `Source`; by server-side apply, so that a field manager that holds another digest is not overridden."""
        # the uid: a Tool that was deleted meanwhile is not created by this, and one that came back is another
        body = tool.approval
        body["metadata"]["uid"] = tool.uid
        query = {"fieldManager": self._manager} | ({"force": "true"} if self._force else {})
        self._write(tool, body, APPLY_PATCH, query)

    def reject(self, tool: Shown, reason: str) -> None:
        """As `Source`."""
        written: dict[str, Any] = {
            "metadata": {
                "uid": tool.uid,
                "annotations": {REJECTED_DIGEST: tool.digest, REJECTED_REASON: reason},
            }
        }
        if tool.approved_digest == tool.digest:
            written["spec"] = {"approvedDigest": None}
        self._write(tool, written, MERGE_PATCH, {"fieldManager": self._manager})

    def _write(self, tool: Shown, body: Any, content_type: str, query: Mapping[str, str]) -> None:
        namespace, _, name = tool.object.partition("/")
        of = (tool.stable or tool.tool).tool_id.partition("/")[2]
        may = f"kubectl auth can-i approve tools.toolcrib.dev/{of} -n {namespace}"
        request = self._kube.request(
            "PATCH",
            kube_requests.path(tool.kind, namespace, name),
            query=query,
            body=body,
            content_type=content_type,
        )
        hints = Hints(denied=f"you need the verb approve on the Tool: {may}", conflict=_CONFLICT)
        kube_requests.asked(request, f"write {tool.key}", hints)
