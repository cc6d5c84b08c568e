"""A real OpenID provider: from its discovery document to the tools of its clients, through restarts and absences of it."""

import base64
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest

from dex import GROUPS, USER, Dex
from realparts.processes import wait_until
from realparts.required import require_real
from registry_harness import RunningRegistry, binding, running_registry, tool
from registry_process import RegistryProcess, configuration, process
from toolcrib.identity import Issuer
from toolcrib.resources.bindings import SubjectKind
from toolcrib.wire.publish import PublishedBinding, PublishedSubject

pytestmark = pytest.mark.real

TOOLS = [tool("calculator"), tool("vault"), tool("notes"), tool("mail")]
STABLE = base64.urlsafe_b64encode(b"\x0a\x0808a8684b\x12\x05local").rstrip(b"=").decode()
"""Dex's `sub`: a protobuf message of the user's id and the connector's."""
AUDIENCE = "openid audience:server:client_id:toolcrib"
"""The scope by which a trusted peer of the client toolcrib gets tokens with `toolcrib` in `aud`."""


@pytest.fixture(scope="module")
def dex() -> Iterator[Dex]:
    with provider() as running:
        yield running


def provider() -> Dex:
    require_real("dex")
    return Dex(["toolcrib", "agent", "stranger"], {"toolcrib": ["agent", "stranger"]})


def bindings(issuer: str) -> list[PublishedBinding]:
    def grant(scope: str, kind: SubjectKind, **fields: str) -> PublishedBinding:
        subject = PublishedSubject(kind=kind, issuer=issuer, **fields)  # type: ignore[arg-type]
        return binding(scope, (scope,), subjects=(subject,))

    return [
        grant("calculator:use", SubjectKind.OAUTH_CLIENT, client_id="agent"),
        grant("vault:use", SubjectKind.USER, name=STABLE),
        grant("mail:use", SubjectKind.USER, name=USER),
        grant("notes:use", SubjectKind.GROUP, name="ops"),
    ]


def trusted(dex: Dex, **fields: Any) -> dict[str, Any]:
    """What docs/guides/identity-providers.md says of Dex."""
    return {
        "issuer": dex.issuer,
        "audience": ["toolcrib"],
        "scopes": "bindings",
        "accept_id_tokens": True,
        **fields,
    }


@contextlib.contextmanager
def registry(dex: Dex, **fields: Any) -> Iterator[RunningRegistry]:
    issuer = Issuer.model_validate(trusted(dex, **fields))
    harness = Issuer(issuer="https://issuer.test", audience=("toolcrib",), cluster=True)
    with running_registry(TOOLS, bindings(dex.issuer), issuers=(harness, issuer)) as running:
        keys = running.registry.keys
        running.on_loop(keys.start)  # type: ignore[attr-defined]
        try:
            yield running
        finally:
            running.on_loop(keys.close)  # type: ignore[attr-defined]


@contextlib.contextmanager
def serving(dex: Dex, folder: Path) -> Iterator[RegistryProcess]:
    """The registry as a process of its own, which trusts this Dex too."""
    file = configuration(folder)
    settings = json.loads(file.read_text())
    settings["issuers"].append(trusted(dex))
    settings["allow_dev_issuer"] = True  # this Dex speaks plain HTTP, on loopback
    file.write_text(json.dumps(settings))
    with process(file) as running:
        running.publish(*TOOLS, bindings=tuple(bindings(dex.issuer)))
        yield running


def answer(url: str, token: str) -> httpx.Response:
    return httpx.get(f"{url}/v1/tools", headers={"Authorization": f"Bearer {token}"}, timeout=30)


def names(url: str, token: str) -> list[str]:
    found = answer(url, token)
    assert found.status_code == 200, found.text
    return [one["name"] for one in found.json()["tools"]]


def refusal(url: str, token: str) -> str:
    found = answer(url, token)
    assert (found.status_code, found.json()["code"]) == (401, "invalid_token"), found.text
    return str(found.json()["detail"])


def test_a_machine_client_a_user_and_a_group_of_dex_see_what_is_bound_to_them(dex: Dex) -> None:
    with registry(dex) as running:
        assert names(running.url, dex.token("agent", AUDIENCE)["access_token"]) == ["calculator"]
        assert names(running.url, dex.token("stranger", AUDIENCE)["access_token"]) == []
        user = dex.user_token("stranger", f"{AUDIENCE} email groups")["access_token"]
        assert names(running.url, user) == ["notes", "vault"]
        assert "system:masters" in GROUPS, "and that it is, of this issuer, means nothing"


def test_a_verified_address_of_dex_can_be_mapped_to_the_user(dex: Dex) -> None:
    with registry(dex, claims={"user": "email"}) as running:
        user = dex.user_token("stranger", f"{AUDIENCE} email groups")["access_token"]
        assert names(running.url, user) == ["mail", "notes"]


def test_without_a_client_for_the_registry_the_client_is_mapped_from_the_audience(dex: Dex) -> None:
    with registry(dex, audience=["agent", "stranger"], claims={"client": ["aud"]}) as running:
        token = dex.token("agent")["access_token"]
        assert jwt.decode(token, options={"verify_signature": False})["aud"] == "agent"
        assert names(running.url, token) == ["calculator"]
        assert names(running.url, dex.token("stranger")["access_token"]) == []


def test_tokens_for_another_audience_are_refused(dex: Dex) -> None:
    with registry(dex) as running:
        for token in (dex.token("agent")["access_token"], dex.user_token("agent")["id_token"]):
            assert "another audience" in refusal(running.url, token)


def test_id_tokens_are_refused_unless_the_issuer_has_no_others(dex: Dex) -> None:
    with registry(dex, accept_id_tokens=False) as running:
        found = dex.token("agent", AUDIENCE)
        assert "ID token" in refusal(running.url, found["id_token"])
        # Dex's access tokens cannot be told from its ID tokens: that is what accept_id_tokens is for
        assert "ID token" in refusal(running.url, found["access_token"])


def test_a_restart_with_new_keys_costs_nobody_anything_but_the_old_tokens(tmp_path: Path) -> None:
    with provider() as dex, serving(dex, tmp_path) as running:
        seen, unseen = (dex.token("agent", AUDIENCE)["access_token"] for _ in range(2))
        assert names(running.url, seen) == ["calculator"]
        dex.stop()
        assert names(running.url, seen) == ["calculator"]
        assert names(running.url, unseen) == ["calculator"], "its keys are known, though it is away"
        dex.start()
        assert names(running.url, seen) == ["calculator"]
        fresh = dex.token("agent", AUDIENCE)["access_token"]
        assert names(running.url, fresh) == ["calculator"], "at first use, by one fetch"
        for old in (seen, unseen):
            assert "unknown key" in refusal(running.url, old), (
                "its key has left the set, and the cache with it"
            )


def test_a_provider_that_is_down_at_the_start_is_found_once_it_is_up(tmp_path: Path) -> None:
    with provider() as dex:
        early = dex.token("agent", AUDIENCE)["access_token"]
        dex.stop()
        with serving(dex, tmp_path) as running:
            unknown = answer(running.url, early)
            assert (unknown.status_code, unknown.json()["code"]) == (503, "not_ready")
            assert unknown.headers["retry-after"] == "5"
            dex.start()
            token = dex.token("agent", AUDIENCE)["access_token"]
            wait_until(lambda: answer(running.url, token).status_code == 200, timeout=60)
            assert names(running.url, token) == ["calculator"]
            assert "unknown key" in refusal(running.url, early)
