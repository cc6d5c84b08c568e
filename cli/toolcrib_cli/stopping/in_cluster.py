"""Agents of a cluster, with the rights of a kubeconfig: who may resume one is checked at admission."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolcrib.resources import API_VERSION, KINDS
from toolcrib_cli import kube_requests
from toolcrib_cli.errors import CliError
from toolcrib_cli.kube_requests import Hints
from toolcrib_cli.stopping.source import Body
from toolcrib_operator.adapters.kube import APPLY_PATCH, MERGE_PATCH, Kube
from toolcrib_operator.errors import Gone

MANAGER = "toolcrib-agent"
_GONE = "is the definition of Agents installed?"


class ClusterAgents:
    """Those of a cluster."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    def objects(self, kinds: Sequence[str], namespace: str | None) -> list[Body]:
        """As `Source`."""
        return [
            each
            for kind in kinds
            for each in kube_requests.listed(
                self._kube, kind, namespace if KINDS[kind].namespaced else None, Hints(gone=_GONE)
            )
        ]

    def agent(self, namespace: str, name: str) -> Body | None:
        """As `Source`."""
        request = self._kube.request("GET", kube_requests.path("Agent", namespace, name))
        try:
            return kube_requests.asked(request, f"read {namespace}/{name}")
        except CliError as error:
            if isinstance(error.__cause__, Gone):
                return None
            raise

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
            kube_requests.path("Agent", namespace, name),
            query=query,
            body=body,
            content_type=APPLY_PATCH if spec["suspended"] else MERGE_PATCH,
        )
        verb = "patch" if spec["suspended"] else "resume"
        may = f"kubectl auth can-i {verb} agents.toolcrib.dev/{name} -n {namespace}"
        hints = Hints(denied=f"check your right to it: {may}", gone=_GONE)
        written = kube_requests.asked(request, f"write the Agent {namespace}/{name}", hints)
        return int(written["metadata"]["generation"])
