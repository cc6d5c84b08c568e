"""Two replicas call a tool of another registry with access tokens of its issuer: each has its own, both lose them with the
Secret, and nothing shows them."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from mcp_upstream import running, stateless
from registry_harness import RunningRegistry, binding, running_registry, tool
from token_endpoint import auth, credentials
from toolcrib.wire.backends import PublishedBackend, PublishedMcp
from toolcrib.wire.publish import Credentials, Publish, Revision
from toolcrib_registry.identity.issuer import ClientTokens, LocalIssuer

CLIENT = "team/bot"


@pytest.fixture
def issuer(tmp_path: Path) -> LocalIssuer:
    return LocalIssuer.open(tmp_path / "issuer")


@pytest.fixture
def behind(issuer: LocalIssuer) -> Iterator[RunningRegistry]:
    """The other registry: its issuer gives tokens at `/oauth/token`, and its tools take them at `/mcp/direct`."""
    tokens = ClientTokens(issuer, lambda namespace, name: {"ask:use"})
    with ExitStack() as stack:
        up = stack.enter_context(running(stateless()))
        place = PublishedBackend(url=up.url, mcp=PublishedMcp(server="team/files", tool="ask"))
        there = [tool("ask", backend=place)]
        found = stack.enter_context(
            running_registry(
                publish=False, one_port=True, token_endpoint=tokens, issuers=(issuer.issuer,), extra_keys=issuer.keyset
            )
        )  # fmt: skip
        step = Publish(
            to=Revision(epoch=1, seq=1), tools=tuple(there), bindings=(binding("bot", ("ask:use",)),)
        )
        found.on_loop(lambda: found.registry.deps.state.publish(step))
        yield found


@pytest.fixture
def replicas(behind: RunningRegistry) -> Iterator[list[RunningRegistry]]:
    place = PublishedBackend(
        url=f"{behind.url}/mcp/direct",
        auth=auth("team", token_url=f"{behind.url}/oauth/token", scope="ask:use"),
        mcp=PublishedMcp(server="team/behind", tool="ask"),
    )
    with ExitStack() as stack:
        found = []
        for _ in range(2):
            one = stack.enter_context(
                running_registry([tool("ask", backend=place)], [binding("bot", ("ask:use",))])
            )
            one.heartbeat()
            found.append(one)
        yield found


def push(registry: RunningRegistry, given: Credentials) -> None:
    answer = registry.admin("POST", "/v1/admin/credentials", content=given.model_dump_json())
    assert answer.status_code == 200, answer.text


def asked(registry: RunningRegistry) -> tuple[int, Any]:
    body = {"tool": "ask", "arguments": {"q": 1}}
    answer = registry.http.post(f"{registry.url}/v1/call", headers=registry.auth("team", "bot"), json=body)
    return answer.status_code, answer.json()


def test_each_replica_obtains_a_token_and_loses_it_with_the_secret(
    replicas: list[RunningRegistry],
    behind: RunningRegistry,
    issuer: LocalIssuer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    secret = issuer.client_secret("team", "bot")
    given = credentials(behind.url, namespace="team", client=CLIENT, secret=secret)

    with caplog.at_level(logging.DEBUG):
        assert [asked(each)[1]["code"] for each in replicas] == ["credential_pending"] * 2
        for each in replicas:
            push(each, given)
        for each in (*replicas, *replicas):
            status, answer = asked(each)
            assert (status, answer["result"]) == (200, {"q": 1})
        for each in replicas:
            push(each, Credentials(epoch=1))
        assert [asked(each)[1]["code"] for each in replicas] == ["credential_pending"] * 2

    for each in replicas:
        assert each.registry.tokens._held == {}
        assert secret not in each.metrics()
    assert secret not in caplog.text


def test_a_wrong_secret_is_a_problem_that_says_where_to_look(
    replicas: list[RunningRegistry], behind: RunningRegistry
) -> None:
    push(replicas[0], credentials(behind.url, namespace="team", client=CLIENT, secret="wrong-secret"))

    status, problem = asked(replicas[0])

    assert (status, problem["code"]) == (502, "backend_auth_failed")
    assert "(invalid_client). Check the Secret" in problem["detail"]
    assert "wrong-secret" not in str(problem)
    assert 'outcome="backend_auth_failed"' in replicas[0].metrics()
