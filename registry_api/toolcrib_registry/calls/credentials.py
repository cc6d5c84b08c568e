"""Backend credentials, as the operator pushed them. In memory only; never shown, logged or written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from toolcrib.errors import EpochFenced
from toolcrib.wire.backends import SecretReference
from toolcrib.wire.publish import Credential, Credentials


class CredentialSink(Protocol):
    """Takes the credentials that the operator pushes."""

    def replace(self, credentials: Credentials) -> None:
        """Hold these and forget all others.

        Raises:
            EpochFenced: the sender no longer leads.
        """
        ...


class CredentialStore:
    """All credentials that tools refer to, swapped whole."""

    def __init__(self) -> None:
        self._epoch = 0
        self.version = 0
        """Another number after each replacement."""
        self._by_key: dict[tuple[str, str, str], Credential] = {}
        self._told: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"CredentialStore({len(self._by_key)} credentials, epoch {self._epoch})"

    def __len__(self) -> int:
        return len(self._by_key)

    def replace(self, credentials: Credentials) -> None:
        """Take these and forget all others.

        Raises:
            EpochFenced: its sender no longer leads; nothing changed.
        """
        if credentials.epoch < self._epoch:
            raise EpochFenced(f"epoch {credentials.epoch} is behind {self._epoch}")
        self._epoch = credentials.epoch
        self.version += 1
        self._by_key = {(c.namespace, c.name, c.key): c for c in credentials.credentials}
        for told in self._told:
            told()

    def subscribe(self, told: Callable[[], None]) -> None:
        """Call `told` after each replacement."""
        self._told.append(told)

    def get(self, reference: SecretReference) -> Credential | None:
        """The credential, or None where this replica has not (yet) been given it."""
        return self._by_key.get((reference.namespace, reference.name, reference.key))
