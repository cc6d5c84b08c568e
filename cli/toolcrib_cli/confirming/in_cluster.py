"""Calls that wait in a cluster, with the rights of a kubeconfig: who may confirm one is checked at admission."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from toolcrib import confirmations
from toolcrib.resources.confirmations import KIND
from toolcrib.wire.confirmations import CallDecision, ConfirmableCall
from toolcrib_cli import kube_requests
from toolcrib_cli.kube_requests import Hints
from toolcrib_operator.adapters.kube import MERGE_PATCH, Kube


class ClusterCalls:
    """Those of a cluster."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    def waiting(self, namespace: str | None) -> Sequence[ConfirmableCall]:
        """As `Source`."""
        request = self._kube.request("GET", confirmations.path(namespace))
        found = kube_requests.asked(
            request, f"list {KIND}s", _hints("list callconfirmations.toolcrib.dev", namespace)
        )
        calls = [
            c for c in _calls(found.get("items") or ()) if c.decision is None and c.expires_at > time.time()
        ]
        return sorted(calls, key=lambda each: (each.asked_at, each.key))

    def decide(self, call: ConfirmableCall, decision: CallDecision) -> None:
        """As `Source`: a write of the person's own, so that admission judges the person. In effect a second later."""
        name = call.tool_id.partition("/")[2]
        person = kube_requests.username(self._kube, _hints("create selfsubjectreviews", None))
        spec: dict[str, Any] = {"decision": decision.value, "decidedBy": person}
        if decision is CallDecision.CONFIRMED and call.hidden:
            spec["acceptedHiddenCharacters"] = call.hidden
        request = self._kube.request(
            "PATCH",
            confirmations.path(call.namespace, call.id),
            body={"spec": spec},
            content_type=MERGE_PATCH,
        )
        hints = _hints(f"confirm tools.toolcrib.dev/{name}", call.namespace)
        kube_requests.asked(request, f"decide about the call {call.key}", hints)


def _hints(may: str, namespace: str | None) -> Hints:
    where = "-A" if namespace is None else f"-n {namespace}"
    return Hints(
        denied=f"check your right to it: kubectl auth can-i {may} {where}",
        gone=f"it may have expired; is the definition of {KIND}s installed?",
    )


def _calls(items: Sequence[Mapping[str, Any]]) -> Iterator[ConfirmableCall]:
    for item in items:
        with contextlib.suppress(ValueError):
            yield confirmations.call_of(item)
