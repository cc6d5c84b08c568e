"""The local issuer's tokens and its token endpoint, as the local mode mounts them: on one port."""

from pathlib import Path

from registry_harness import binding, running_registry, tool
from toolcrib.wire.publish import Publish, Revision
from toolcrib_registry.identity.issuer import ClientTokens, LocalIssuer

TOOLS = [tool("calculator"), tool("hidden")]


def test_a_client_gets_a_token_and_discovers_what_its_bindings_grant(tmp_path: Path) -> None:
    issuer = LocalIssuer.open(tmp_path / "issuer")
    secret = issuer.client_secret("team", "bot")
    endpoint = ClientTokens(issuer, lambda namespace, name: {"calculator:use"})
    with running_registry(
        TOOLS,
        [binding("bot")],
        issuers=(issuer.issuer,),
        extra_keys=issuer.keyset,
        token_endpoint=endpoint,
        one_port=True,
        publish=False,
    ) as r:
        state = r.registry.deps.state
        r.on_loop(lambda: state.publish(_full()))
        answer = r.http.post(
            r.url + "/oauth/token", data={"grant_type": "client_credentials"}, auth=("team/bot", secret)
        )
        wrong = r.http.post(
            r.url + "/oauth/token", data={"grant_type": "client_credentials"}, auth=("team/bot", "nope")
        )
        headers = {"Authorization": f"Bearer {answer.json()['access_token']}"}
        by_bindings = r.http.get(r.url, headers=headers).json()
        by_token = r.http.get(r.url, headers=_bearer(issuer.mint(None, "anyone", "hidden:use"))).json()
        nothing = r.http.get(r.url, headers=_bearer(issuer.mint("team", "bot", ""))).json()
        documented = r.http.get(r.url + "/openapi.json").json()["paths"]

    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    assert (wrong.status_code, wrong.json()["error"]) == (401, "invalid_client")
    assert [t["name"] for t in by_bindings["tools"]] == ["calculator"]
    assert [t["name"] for t in by_token["tools"]] == ["hidden"]
    assert (nothing["authenticated"], nothing["tools"]) == (True, [])
    assert "/oauth/token" in documented


def _full() -> Publish:
    return Publish(to=Revision(epoch=1, seq=1), tools=tuple(TOOLS), bindings=(binding("bot"),))


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}
