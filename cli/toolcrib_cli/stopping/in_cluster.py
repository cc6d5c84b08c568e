"""Agents of a cluster, with the rights of a kubeconfig: who may resume one is checked at admission."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any
from urllib.parse import quote

from toolcrib.resources import API_VERSION, KINDS
from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.stopping.source import Body
from toolcrib_operator.adapters.kube import APPLY_PATCH, MERGE_PATCH, Kube, Refused
from toolcrib_operator.errors import Gone, OperatorError

MANAGER = "toolcrib-agent"


class ClusterAgents:
    """Those of a cluster."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    def objects(self, kinds: Sequence[str], namespace: str | None) -> list[Body]:
        """As `Source`."""
        found: list[Body] = []
        for kind in kinds:
            within = namespace if KINDS[kind].namespaced else None
            page = self._asked(self._kube.request("GET", _path(kind, within)), f"list {KINDS[kind].plural}")
            found += [{**each, "kind": kind} for each in page.get("items") or ()]
        return found

    def agent(self, namespace: str, name: str) -> Body | None:
        """As `Source`."""
        path = f"{_path('Agent', namespace)}/{quote(name)}"
        try:
            found: Body = self._asked(self._kube.request("GET", path), f"read {namespace}/{name}")
        except CliError as error:
            if isinstance(error.__cause__, Gone):
                return None
            raise
        return found

    def write(self, namespace: str, name: str, spec: dict[str, Any]) -> int:
        """As `Source`.

        A suspension is applied, so that it makes the Agent where there is none, and takes the field from any other manager.
        """
        body: dict[str, Any] = {"spec": spec}
        query = {"fieldManager": MANAGER}
        if spec["suspended"]:
            head = {"apiVersion": API_VERSION, "kind": "Agent"}
            body = {**head, "metadata": {"namespace": namespace, "name": name}, **body}
            query["force"] = "true"
        request = self._kube.request(
            "PATCH",
            f"{_path('Agent', namespace)}/{quote(name)}",
            query=query,
            body=body,
            content_type=APPLY_PATCH if spec["suspended"] else MERGE_PATCH,
        )
        verb = "patch" if spec["suspended"] else "resume"
        may = f"kubectl auth can-i {verb} agents.toolcrib.dev/{name} -n {namespace}"
        written = self._asked(request, f"write the Agent {namespace}/{name}", may)
        return int(written["metadata"]["generation"])

    def _asked(self, request: Coroutine[Any, Any, Any], what: str, may: str = "") -> Any:
        try:
            found = asyncio.run(request)
        except Refused as error:
            denied = error.status in (401, 403)
            raise CliError(
                f"cannot {what}: {error.message}",
                hint=f"check your right to it: {may}" if denied and may else "",
                code=Exit.NOT_PERMITTED if denied else Exit.FAILED,
            ) from error
        except Gone as error:
            raise CliError(
                f"cannot {what}: {error}", hint="is the definition of Agents installed?"
            ) from error
        except OperatorError as error:
            raise CliError(
                f"cannot {what}: {error}",
                hint="is it the right cluster? Specify --kubeconfig FILE or --context NAME",
                code=Exit.UNREACHABLE,
            ) from error
        if not isinstance(found, dict) or "metadata" not in found:
            raise CliError(
                "the response is not one of a Kubernetes API server",
                hint="is it the right cluster? Specify --kubeconfig FILE or --context NAME",
                code=Exit.UNREACHABLE,
            )
        return found


def _path(kind: str, namespace: str | None) -> str:
    space = "" if namespace is None else f"/namespaces/{quote(namespace)}"
    return f"/apis/{API_VERSION}{space}/{KINDS[kind].plural}"
