"""Access requests of a cluster, with the rights of a kubeconfig: what its owner may grant is checked at admission."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any
from urllib.parse import quote

from toolcrib.resources import API_VERSION, KINDS
from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.requesting.asked import Asked, rejecting
from toolcrib_operator.adapters.kube import MERGE_PATCH, Kube, Refused
from toolcrib_operator.errors import Conflict, Gone, OperatorError

_PAGE = "500"
MANAGER = "toolcrib-access"


class ClusterRequests:
    """Those of a cluster."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    def objects(self, namespace: str | None) -> list[Mapping[str, Any]]:
        """As `Source`."""
        return [
            each for kind in ("AccessRequest", "Tool", "ToolServer") for each in self._all(kind, namespace)
        ]

    def username(self) -> str | None:
        """As `Source`."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        answer = self._asked(self._kube.request("POST", path, body=body), "ask who you are")
        return str(answer["status"]["userInfo"]["username"])

    def grant(self, binding: Mapping[str, Any]) -> None:
        """As `Source`; admission asks for the verbs `grant` and `equip`."""
        metadata = binding["metadata"]
        request = self._kube.request(
            "POST",
            _path("AgentScopeBinding", metadata["namespace"]),
            query={"fieldManager": MANAGER, "fieldValidation": "Strict"},
            body=dict(binding),
        )
        self._asked(request, f"approve {metadata['namespace']}/{metadata['name']}")

    def revoke(self, binding: Mapping[str, Any]) -> None:
        """As `Source`."""
        metadata = binding["metadata"]
        path = f"{_path('AgentScopeBinding', metadata['namespace'])}/{quote(metadata['name'])}"
        self._asked(
            self._kube.request("DELETE", path), f"delete {metadata['namespace']}/{metadata['name']} again"
        )

    def reject(self, asked: Asked, reason: str) -> None:
        """As `Source`."""
        metadata = asked.request.metadata
        body = {"metadata": {"resourceVersion": metadata.resource_version, "annotations": rejecting(reason)}}
        request = self._kube.request(
            "PATCH",
            f"{_path('AccessRequest', metadata.namespace)}/{quote(metadata.name)}",
            query={"fieldManager": MANAGER},
            body=body,
            content_type=MERGE_PATCH,
        )
        self._asked(request, f"reject {asked.key}")

    def _all(self, kind: str, namespace: str | None) -> list[Mapping[str, Any]]:
        path, query, found = _path(kind, namespace), {"limit": _PAGE}, list[Mapping[str, Any]]()
        while True:
            page = self._asked(self._kube.request("GET", path, query=query), f"list {KINDS[kind].plural}")
            found += [{"apiVersion": API_VERSION, "kind": kind, **each} for each in page.get("items") or ()]
            if not (more := (page.get("metadata") or {}).get("continue")):
                return found
            query = {"limit": _PAGE, "continue": more}

    def _asked(self, request: Coroutine[Any, Any, Any], what: str) -> Any:
        try:
            found = asyncio.run(request)
        except Refused as error:
            denied = error.status in (401, 403)
            raise CliError(
                f"cannot {what}: {error.message}",
                hint="ask somebody with that right; docs/guides/access-for-a-while.md says who may do what",
                code=Exit.NOT_PERMITTED if denied else Exit.FAILED,
            ) from error
        except Conflict as error:
            raise CliError(
                f"cannot {what}: {error}",
                hint="somebody has decided or changed it meanwhile: toolcrib access requests --all",
            ) from error
        except Gone as error:
            raise CliError(f"cannot {what}: {error}", hint="is it still there?") from error
        except OperatorError as error:
            raise CliError(
                f"cannot {what}: {error}",
                hint="is it the right cluster? Specify --kubeconfig FILE or --context NAME",
                code=Exit.UNREACHABLE,
            ) from error
        if not isinstance(found, dict):
            raise CliError(
                "the response is not one of a Kubernetes API server",
                hint="is it the right cluster? Specify --kubeconfig FILE or --context NAME",
                code=Exit.UNREACHABLE,
            )
        return found


def _path(kind: str, namespace: str | None) -> str:
    space = "" if namespace is None else f"/namespaces/{quote(namespace)}"
    return f"/apis/{API_VERSION}{space}/{KINDS[kind].plural}"
