"""A real OpenID provider: Dex on loopback, with machine clients and one user."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import httpx

from realparts import lookup, processes

EXCHANGE = "self"
"""The connector by which tokens of Dex itself are exchanged."""
USER, PASSWORD = "alice@example.com", "alices-password"
GROUPS = ("ops", "system:masters")
_HASH = "$2b$10$abcdefghijklmnopqrstuuVCytO.N.4q/BvR8WCCtCSjsUXirnYm."


class Dex(processes.Server):
    """One Dex on a port of its own; a context manager. `stop` and `start` keep the port and nothing else.

    Its storage is memory: a started one has new signing keys, as after a rotation that keeps no old ones.

    Args:
        clients: their ids; each may ask for tokens with its secret (`secret_of`), for itself or by a user's password.
        peers: client → those that may ask for tokens with it in `aud`.
        exchanges: it exchanges access tokens of its own for others (RFC 8693), by the connector `EXCHANGE`.

    Raises:
        lookup.MissingPartError: the program is not here.
        processes.NotReadyError: it does not start.
    """

    def __init__(
        self,
        clients: Sequence[str],
        peers: Mapping[str, Sequence[str]] | None = None,
        *,
        exchanges: bool = False,
    ) -> None:
        program = lookup.path_of("dex")
        self.directory = Path(tempfile.mkdtemp(prefix="toolcrib-dex-"))
        port = processes.free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.issuer = f"{self.url}/dex"
        self.client = httpx.Client(trust_env=False, timeout=30)
        config = self.directory / "dex.yaml"
        made = _config(self.issuer, port, clients, peers or {})
        if exchanges:
            _exchanging(made, self.issuer, clients[0])
        config.write_text(json.dumps(made))  # JSON is YAML
        self.process = processes.Child(
            "dex", [program, "serve", str(config)], log=self.directory / "dex.log",
            env=processes.clean_environment(), cwd=self.directory,
        )  # fmt: skip

    def start(self) -> Self:
        """Start it, with new keys, and wait until it answers."""
        self.process.start()
        self.process.wait_ready(self._ready, timeout=60)
        return self

    def stop(self) -> None:
        """Stop it; nothing listens on its port then."""
        self.process.kill()

    def close(self) -> None:
        """End it and remove its folder."""
        self.process.kill()
        self.client.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def token(self, client: str, scope: str = "", **fields: str) -> dict[str, Any]:
        """The token endpoint's answer to client_credentials: `access_token`, and `id_token` with the scope openid."""
        return self._grant(client, {"grant_type": "client_credentials", "scope": scope, **fields})

    def user_token(self, client: str, scope: str = "openid groups", **fields: str) -> dict[str, Any]:
        """The same for the user, by password."""
        who = {"grant_type": "password", "username": USER, "password": PASSWORD}
        return self._grant(client, {**who, "scope": scope, **fields})

    def _grant(self, client: str, form: dict[str, str]) -> dict[str, Any]:
        answer = self.client.post(
            f"{self.issuer}/token",
            data={k: v for k, v in form.items() if v},
            auth=(client, secret_of(client)),
        )
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def _ready(self) -> bool:
        try:
            return self.client.get(f"{self.issuer}/.well-known/openid-configuration", timeout=5).is_success
        except httpx.TransportError:
            return False


def secret_of(client: str) -> str:
    """The secret of a client."""
    return f"secret-of-{client}"


def _config(
    issuer: str, port: int, clients: Sequence[str], peers: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    grants = ["client_credentials", "password"]
    return {
        "issuer": issuer,
        "storage": {"type": "memory"},
        "web": {"http": f"127.0.0.1:{port}"},
        "oauth2": {"grantTypes": grants, "passwordConnector": "local", "skipApprovalScreen": True},
        "enablePasswordDB": True,
        "staticPasswords": [
            {"email": USER, "hash": _HASH, "username": "alice", "userID": "08a8684b", "groups": list(GROUPS)}
        ],
        "staticClients": [
            {
                "id": client, "name": client, "secret": secret_of(client), "redirectURIs": ["http://127.0.0.1/"],
                "grantTypes": grants, "trustedPeers": list(peers.get(client, ())),
                "clientCredentialsClaims": {"groups": ["robots"]},
            }
            for client in clients
        ],
    }  # fmt: skip


def _exchanging(config: dict[str, Any], issuer: str, client: str) -> None:
    """Let Dex verify its own access tokens as those of another provider: at its own userinfo endpoint."""
    grant = "urn:ietf:params:oauth:grant-type:token-exchange"
    config["oauth2"]["grantTypes"].append(grant)
    for each in config["staticClients"]:
        each["grantTypes"] = config["oauth2"]["grantTypes"]
    config["connectors"] = [
        {
            "type": "oidc", "id": EXCHANGE, "name": "itself",
            "config": {
                "issuer": issuer, "clientID": client, "clientSecret": secret_of(client),
                "redirectURI": f"{issuer}/callback", "getUserInfo": True, "insecureSkipEmailVerified": True,
            },
        }
    ]  # fmt: skip
