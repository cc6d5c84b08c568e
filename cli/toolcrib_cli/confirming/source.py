"""Where calls that wait are read, and decisions about them written: the port of `in_cluster` and `in_local_mode`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from toolcrib.wire.confirmations import CallDecision, ConfirmableCall


class Source(Protocol):
    """Calls that wait for a person."""

    def waiting(self, namespace: str | None) -> Sequence[ConfirmableCall]:
        """All of them, or those of a namespace's tools, the oldest first. Raises CliError."""
        ...

    def decide(self, call: ConfirmableCall, decision: CallDecision) -> None:
        """Say what becomes of one; confirming accepts what its arguments hide.

        Raises:
            CliError: it waits no more, or this is not permitted.
        """
        ...
