"""Calls that wait in the running local mode: the key of its data folder opens them. Loads no server part."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from toolcrib.wire.confirmations import CallDecision, ConfirmableCall
from toolcrib_cli.local import questions


class LocalCalls:
    """Those of the running local mode of a data folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def waiting(self, namespace: str | None) -> Sequence[ConfirmableCall]:
        """As `Source`."""
        found = map(ConfirmableCall.model_validate, questions.calls(self._folder))
        return [each for each in found if namespace in (None, each.namespace)]

    def decide(self, call: ConfirmableCall, decision: CallDecision) -> None:
        """As `Source`; it is in effect when this returns."""
        number = call.hidden if decision is CallDecision.CONFIRMED else 0
        decided = {"id": call.id, "decision": decision.value, "accepted_hidden": number}
        questions.decide_call(self._folder, decided)
