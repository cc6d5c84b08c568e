"""Approvals in a cluster, with the rights of a kubeconfig: who may write them is checked at admission."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any
from urllib.parse import quote

from toolcrib.resources import API_VERSION, KINDS
from toolcrib.resources.tools import REJECTED_DIGEST, REJECTED_REASON
from toolcrib_cli.approving.shown import Shown, scanner_of, shown
from toolcrib_cli.approving.source import key_of
from toolcrib_cli.errors import CliError, Exit
from toolcrib_operator.adapters.kube import APPLY_PATCH, MERGE_PATCH, Kube, Refused
from toolcrib_operator.errors import Conflict, Gone, OperatorError

_PAGE = "500"


class ClusterTools:
    """Those of a cluster, with the rights of a kubeconfig."""

    def __init__(self, kube: Kube, *, field_manager: str, force: bool = False) -> None:
        self._kube = kube
        self._manager, self._force = field_manager, force

    def tools(self, namespace: str | None) -> list[Shown]:
        """As `Source`."""
        servers = {key_of(each): each for each in self._all("ToolServer", namespace)}
        bodies = self._all("Tool", namespace)
        scanner = scanner_of(bodies)
        found = (shown(each, servers, scanner) for each in bodies)
        return sorted((each for each in found if each is not None), key=lambda each: each.key)

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

    def _all(self, kind: str, namespace: str | None) -> list[Mapping[str, Any]]:
        path, query, found = _path(kind, namespace), {"limit": _PAGE}, list[Mapping[str, Any]]()
        while True:
            page = self._asked(self._kube.request("GET", path, query=query), f"list {KINDS[kind].plural}")
            items = page.get("items") if isinstance(page, dict) else None
            if not isinstance(items, list):
                raise CliError(
                    "the response is not one of a Kubernetes API server",
                    hint="is it the right cluster? Specify --kubeconfig FILE or --context NAME",
                    code=Exit.UNREACHABLE,
                )
            found += [{"apiVersion": API_VERSION, "kind": kind, **each} for each in items]
            if not (more := (page.get("metadata") or {}).get("continue")):
                return found
            query = {"limit": _PAGE, "continue": more}

    def _write(self, tool: Shown, body: Any, content_type: str, query: Mapping[str, str]) -> None:
        namespace, _, name = tool.key.partition("/")
        request = self._kube.request(
            "PATCH",
            f"{_path('Tool', namespace)}/{quote(name)}",
            query=query,
            body=body,
            content_type=content_type,
        )
        self._asked(
            request,
            f"write {tool.key}",
            f"kubectl auth can-i approve tools.toolcrib.dev/{name} -n {namespace}",
        )

    def _asked(self, request: Coroutine[Any, Any, Any], what: str, may: str = "") -> Any:
        try:
            return asyncio.run(request)
        except Refused as error:
            denied = error.status in (401, 403)
            raise CliError(
                f"cannot {what}: {error.message}",
                hint=f"you need the verb approve on it: {may}" if denied and may else "",
                code=Exit.NOT_PERMITTED if denied else Exit.FAILED,
            ) from error
        except Conflict as error:
            raise CliError(
                f"cannot {what}: {error}",
                hint="another field manager holds approvedDigest: write it there (-o yaml prints it), or take it over "
                "with --force-conflicts. If the Tool was recreated, look at it again",
            ) from error
        except Gone as error:
            raise CliError(f"cannot {what}: {error}", hint="are the custom resources installed?") from error
        except OperatorError as error:
            raise CliError(
                f"cannot {what}: {error}",
                hint="is it the right cluster? Specify --kubeconfig FILE or --context NAME",
                code=Exit.UNREACHABLE,
            ) from error


def _path(kind: str, namespace: str | None) -> str:
    space = "" if namespace is None else f"/namespaces/{quote(namespace)}"
    return f"/apis/{API_VERSION}{space}/{KINDS[kind].plural}"
