"""CallConfirmations at the API server: listed while calls wait, created, deleted. Never changed: people decide."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from toolcrib import confirmations
from toolcrib.wire.confirmations import ConfirmableCall
from toolcrib_operator.adapters.kube import Kube, Refused
from toolcrib_operator.errors import ClusterUnavailable, Gone, NotListable


class KubeCalls:
    """Reads and writes them as the port `CallObjects` says."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    async def calls(self) -> Sequence[Mapping[str, Any]]:
        """All of them."""
        try:
            answer = await self._kube.request("GET", confirmations.path())
        except (Gone, Refused) as error:
            raise NotListable(f"CallConfirmations cannot be listed: {error}") from error
        items = answer.get("items") if isinstance(answer, dict) else None
        return items if isinstance(items, list) else ()

    async def create_call(self, call: ConfirmableCall) -> str:
        """Create the object of a call that waits; its uid."""
        query = {"fieldValidation": "Strict"}
        try:
            made = await self._kube.request(
                "POST", confirmations.path(call.namespace), query=query, body=confirmations.manifest_of(call)
            )
        except Refused as error:
            raise ClusterUnavailable(f"the API server refused it: {error}") from error
        return str(made["metadata"]["uid"])

    async def delete_call(self, call: ConfirmableCall) -> None:
        """Delete it; one that is gone is no error."""
        try:
            with contextlib.suppress(Gone):
                await self._kube.request("DELETE", confirmations.path(call.namespace, call.id))
        except Refused as error:
            raise ClusterUnavailable(f"the API server refused to delete it: {error}") from error
