"""The route of `toolcrib calls`: the owner of the data folder confirms calls of the running local mode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolcrib.wire.confirmations import CallDecision
from toolcrib_registry.calls.confirmations import Confirmations

OWNER = "owner of the data folder"


class Calls:
    """Calls that wait, and what is decided about them."""

    def __init__(self, confirmations: Confirmations) -> None:
        self._confirmations = confirmations

    def waiting(self) -> tuple[int, dict[str, Any]]:
        """HTTP status and answer: the calls that wait."""
        return 200, {"calls": [call.model_dump(mode="json") for call in self._confirmations.waiting()]}

    def decided(self, asked: Any) -> tuple[int, dict[str, Any]]:
        """HTTP status and answer to `{id, decision: Confirmed | Rejected, accepted_hidden: number}`."""
        decisions = tuple(each.value for each in CallDecision)
        if (
            not isinstance(asked, Mapping)
            or not isinstance(asked.get("id"), str)
            or asked.get("decision") not in decisions
            or type(number := asked.get("accepted_hidden", 0)) is not int
        ):
            said = f"Specify `id`, and `decision`: {' or '.join(decisions)}."
            return 400, {"code": "invalid_request", "detail": said}
        decision = CallDecision(asked["decision"])
        hidden = next((c.hidden for c in self._confirmations.waiting() if asked["id"] in (c.id, c.key)), 0)
        if decision is CallDecision.CONFIRMED and hidden != number:
            said = f"{hidden} characters of the arguments are hidden. Repeat the number in `accepted_hidden`."
            return 422, {"code": "hidden_arguments", "detail": said}
        call = self._confirmations.decide(asked["id"], decision, OWNER, number)
        if call is None:
            return 422, {"code": "unknown_call", "detail": f"No call {asked['id']} waits for confirmation."}
        return 200, {"call": call.key}
