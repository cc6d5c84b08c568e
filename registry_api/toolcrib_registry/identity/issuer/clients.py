"""Client secrets of the local issuer: generated at first use, kept in one private file.

They are kept as they are, not hashed: the command line shows them to the person who owns the folder.
"""

from __future__ import annotations

import hmac
import json
import secrets
from pathlib import Path

from toolcrib_registry.identity.issuer import private_files
from toolcrib_registry.identity.issuer.errors import KeyDamaged

FILE = "clients.json"


class ClientSecrets:
    """client id (`namespace/name`) → secret, shared by the processes that use one folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._lock = folder / f"{FILE}.lock"
        self._dummy = secrets.token_urlsafe(32)

    def secret(self, client_id: str) -> str:
        """The client's secret, generated and durable at first use.

        Raises:
            UnsafePermissions: the file can be read by others.
            KeyDamaged: the file holds no secrets.
        """
        with private_files.locked(self._lock):
            known = self._load()
            if client_id not in known:
                known[client_id] = secrets.token_urlsafe(32)
                private_files.write(self._path, json.dumps(known, indent=1, sort_keys=True).encode())
            return known[client_id]

    def matches(self, client_id: str, secret: str) -> bool:
        """Whether that is the client's secret; takes as long for an unknown client."""
        known = self._load().get(client_id)
        same = hmac.compare_digest((known or self._dummy).encode(), secret.encode())
        return same and known is not None

    def _load(self) -> dict[str, str]:
        content = private_files.read(self._path)
        if content is None:
            return {}
        try:
            loaded = json.loads(content)
        except ValueError as error:
            raise KeyDamaged(f"{self._path} is damaged; remove it to create new secrets") from error
        return {k: v for k, v in loaded.items() if isinstance(v, str) and v}
