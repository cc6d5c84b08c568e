"""Calls that wait in a cluster, with the rights of a kubeconfig: who may confirm one is checked at admission."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from typing import Any

from toolcrib import confirmations
from toolcrib.resources.confirmations import KIND
from toolcrib.wire.confirmations import CallDecision, ConfirmableCall
from toolcrib_cli.errors import CliError, Exit
from toolcrib_operator.adapters.kube import MERGE_PATCH, Kube, Refused
from toolcrib_operator.errors import Gone, OperatorError

_WHOM = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


class ClusterCalls:
    """Those of a cluster."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    def waiting(self, namespace: str | None) -> Sequence[ConfirmableCall]:
        """As `Source`."""
        request = self._kube.request("GET", confirmations.path(namespace))
        found = self._asked(request, f"list {KIND}s", namespace, "list callconfirmations.toolcrib.dev")
        calls = [
            c for c in _calls(found.get("items") or ()) if c.decision is None and c.expires_at > time.time()
        ]
        return sorted(calls, key=lambda each: (each.asked_at, each.key))

    def decide(self, call: ConfirmableCall, decision: CallDecision) -> None:
        """As `Source`: a write of the person's own, so that admission judges the person. In effect a second later."""
        name = call.tool_id.partition("/")[2]
        may = f"confirm tools.toolcrib.dev/{name}"
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        asked = self._kube.request("POST", _WHOM, body=review)
        person = self._asked(asked, "read who you are", None, "create selfsubjectreviews")
        body = {"spec": {"decision": decision.value, "decidedBy": person["status"]["userInfo"]["username"]}}
        request = self._kube.request(
            "PATCH", confirmations.path(call.namespace, call.id), body=body, content_type=MERGE_PATCH
        )
        self._asked(request, f"decide about the call {call.key}", call.namespace, may)

    def _asked(
        self, request: Coroutine[Any, Any, Any], what: str, namespace: str | None, may: str
    ) -> dict[str, Any]:
        try:
            found = asyncio.run(request)
        except Refused as error:
            denied = error.status in (401, 403)
            where = "-A" if namespace is None else f"-n {namespace}"
            raise CliError(
                f"cannot {what}: {error.message}",
                hint=f"check your right to it: kubectl auth can-i {may} {where}" if denied else "",
                code=Exit.NOT_PERMITTED if denied else Exit.FAILED,
            ) from error
        except Gone as error:
            raise CliError(
                f"cannot {what}: {error}",
                hint=f"it may have expired; is the definition of {KIND}s installed?",
            ) from error
        except OperatorError as error:
            raise CliError(
                f"cannot {what}: {error}",
                hint="is it the right cluster? Specify --kubeconfig FILE or --context NAME",
                code=Exit.UNREACHABLE,
            ) from error
        if not isinstance(found, dict) or not ({"metadata", "status"} & found.keys()):
            raise CliError(
                "the response is not one of a Kubernetes API server",
                hint="is it the right cluster? Specify --kubeconfig FILE or --context NAME",
                code=Exit.UNREACHABLE,
            )
        return found


def _calls(items: Sequence[Mapping[str, Any]]) -> Iterator[ConfirmableCall]:
    for item in items:
        with contextlib.suppress(ValueError):
            yield confirmations.call_of(item)
