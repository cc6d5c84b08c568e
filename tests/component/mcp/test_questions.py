"""What a tool asks reaches its caller's client, and the answer the tool: with a state that is good for that call alone."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from mcp_client import STATELESS, fields_of, message
from registry_harness import (
    ISSUER,
    ManualClock,
    RunningRegistry,
    backend,
    binding,
    keyset,
    running_registry,
    tool,
)
from registry_process import configuration, process
from scripted_backend import ScriptedBackend, called, result
from stub_server import Answer, answering
from toolcrib.identity import Issuer, ScopesPolicy
from toolcrib.resources.bindings import SubjectKind
from toolcrib.wire.publish import PublishedSubject
from toolcrib_registry.calls.assertions.keys import make_private
from toolcrib_registry.calls.backends.port import InputRequired
from toolcrib_registry.mcp import request_state

HANDSHAKE = "2025-11-25"
ASKS = {"who": {"method": "elicitation/create", "params": {"message": "Who are you?", "requestedSchema": {}}}}
ELICITS = {"elicitation": {}}
ANSWERS = {"who": {"action": "accept", "content": {"name": "Ada"}}}


def test_a_question_reaches_the_client_and_its_answer_the_tool(
    asking: RunningRegistry, scripted: ScriptedBackend
) -> None:
    scripted.asks(InputRequired(ASKS, "step 1"))

    asked = result(called(asking, capabilities=ELICITS, arguments={"a": 1}))

    assert (asked["resultType"], asked["inputRequests"]) == ("input_required", ASKS)
    state = asked["requestState"]
    assert "step 1" not in state

    done = result(
        called(asking, capabilities=ELICITS, arguments={"a": 1}, inputResponses=ANSWERS, requestState=state)
    )

    assert done["content"] == [{"type": "text", "text": "done"}]
    assert (scripted.given[1].state, scripted.given[1].responses) == ("step 1", ANSWERS)
    assert 'outcome="input_required"' in asking.metrics()


@pytest.mark.parametrize("state", [1, True, 1.5, [], {}, "x", None])
@pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18", "2025-11-25"])
def test_before_2026_a_state_is_none_of_the_protocols_and_may_be_anything(
    asking: RunningRegistry, scripted: ScriptedBackend, version: str, state: Any
) -> None:
    scripted.answers()

    answer = called(asking, version, requestState=state)

    assert (answer.status_code, "result" in answer.json()) == (200, True)
    assert (scripted.given[0].state, scripted.given[0].responses) == (None, None)


def test_a_state_that_could_not_come_back_is_a_failure_at_once(
    asking: RunningRegistry, scripted: ScriptedBackend
) -> None:
    scripted.asks(InputRequired(ASKS, "x" * 60_000))

    told = result(called(asking, capabilities=ELICITS))

    assert told["isError"]
    assert "more state than can be carried" in told["content"][0]["text"]


@pytest.mark.parametrize(
    "other",
    [
        {"who": "other"},
        {"arguments": {"a": 2}},
        {"requestState": "AAAA"},
        {"requestState": "?"},
        {"requestState": ""},
    ],
    ids=["another caller", "other arguments", "made up", "no base64", "empty"],
)
def test_a_state_is_good_for_the_same_caller_and_call_alone(
    asking: RunningRegistry, scripted: ScriptedBackend, other: dict[str, Any]
) -> None:
    scripted.asks(InputRequired(ASKS, "step 1"))
    state = result(called(asking, capabilities=ELICITS, arguments={"a": 1}))["requestState"]

    again = {"arguments": {"a": 1}, "inputResponses": ANSWERS, "requestState": state, **other}
    refused = called(asking, capabilities=ELICITS, **again)

    assert (refused.status_code, refused.json()["error"]["code"]) == (400, -32602)
    assert len(scripted.given) == 1, "the tool never sees it"


def test_each_changed_character_of_a_state_is_noticed(
    asking: RunningRegistry, scripted: ScriptedBackend
) -> None:
    scripted.asks(InputRequired(ASKS, "step 1"))
    state = result(called(asking, capabilities=ELICITS))["requestState"]

    for at in range(0, len(state), 7):
        changed = state[:at] + ("A" if state[at] != "A" else "B") + state[at + 1 :]
        refused = called(asking, capabilities=ELICITS, inputResponses=ANSWERS, requestState=changed)
        assert refused.status_code == 400, at


@pytest.mark.parametrize("more", ["-TAMPERED", "=", "\n", "A" * 4])
@pytest.mark.parametrize("text", ["step 1", "step 12", "step 123"], ids=len)
def test_nothing_can_be_appended_to_a_state(
    asking: RunningRegistry, scripted: ScriptedBackend, text: str, more: str
) -> None:
    """Three lengths: with two, one and no characters of padding."""
    scripted.asks(InputRequired(ASKS, text))
    state = result(called(asking, capabilities=ELICITS))["requestState"]

    refused = called(asking, capabilities=ELICITS, inputResponses=ANSWERS, requestState=state + more)

    assert refused.status_code == 400


def test_a_state_is_good_for_ten_minutes_and_while_the_tools_route_stays(
    asking: RunningRegistry, scripted: ScriptedBackend, clock: ManualClock
) -> None:
    scripted.asks(InputRequired(ASKS, "step 1"))
    state = result(called(asking, capabilities=ELICITS))["requestState"]
    again = {"capabilities": ELICITS, "inputResponses": ANSWERS, "requestState": state}

    clock.advance(599)
    assert called(asking, **again).status_code == 200
    clock.advance(2)
    assert called(asking, **again).status_code == 400

    fresh = result(called(asking, capabilities=ELICITS))["requestState"]
    asking.publish([tool("ask", backend=backend(1))])
    assert called(asking, **{**again, "requestState": fresh}).status_code == 400


@pytest.mark.parametrize(
    ("question", "capabilities", "missing"),
    [
        (ASKS, {}, {"elicitation": {}}),
        ({"s": {"method": "sampling/createMessage", "params": {}}}, ELICITS, {"sampling": {}}),
        ({"r": {"method": "roots/list"}}, {}, {"roots": {}}),
        ({"e": {"method": "elicitation/create", "params": ["mode"]}}, {}, {"elicitation": {}}),
        (
            {"u": {"method": "elicitation/create", "params": {"mode": "url", "url": "https://x"}}},
            ELICITS,
            {"elicitation": {"url": {}}},
        ),
    ],
)
def test_a_client_that_cannot_answer_is_told_what_it_lacks(
    asking: RunningRegistry, scripted: ScriptedBackend, question: Any, capabilities: Any, missing: Any
) -> None:
    scripted.asks(InputRequired(question))

    refused = called(asking, capabilities=capabilities)

    error = refused.json()["error"]
    assert (refused.status_code, error["code"]) == (400, -32021)
    assert error["data"] == {"requiredCapabilities": missing}


def test_a_client_of_2025_is_told_what_the_tool_asks(
    asking: RunningRegistry, scripted: ScriptedBackend
) -> None:
    scripted.asks(InputRequired(ASKS))

    found = result(called(asking, HANDSHAKE))

    assert found["isError"] is True
    assert "Who are you?" in found["content"][0]["text"]


def test_plain_http_is_told_that_the_tool_asks(asking: RunningRegistry, scripted: ScriptedBackend) -> None:
    scripted.asks(InputRequired(ASKS))

    refused = asking.http.post(
        asking.url + "/v1/call", json={"tool": "ask"}, headers=asking.auth("team", "bot")
    )

    assert (refused.status_code, refused.json()["code"]) == (422, "input_required")


def test_a_state_is_of_one_issuers_caller_and_not_of_its_namesake() -> None:
    scripted = ScriptedBackend()
    scripted.asks(InputRequired(ASKS, "step 1"))
    places = ("https://here.test", "https://elsewhere.test")
    users = tuple(PublishedSubject(kind=SubjectKind.USER, issuer=i, name="ada") for i in places)
    cluster = Issuer(issuer=ISSUER, audience=("toolcrib",), scopes=ScopesPolicy.BINDINGS, cluster=True)
    others = [Issuer(issuer=i, audience=("toolcrib",), scopes=ScopesPolicy.BINDINGS) for i in places]
    with running_registry(
        [tool("ask")],
        [binding("ada", ("ask:use",), subjects=users)],
        issuers=(cluster, *others),
        extra_keys={i: keyset()[ISSUER] for i in places},
        backend=scripted,
    ) as r:
        here, elsewhere = ({"iss": i, "sub": "ada"} for i in places)
        state = result(called(r, token=here, capabilities=ELICITS))["requestState"]
        again = {"capabilities": ELICITS, "inputResponses": ANSWERS, "requestState": state}

        assert called(r, token=elsewhere, **again).status_code == 400
        assert result(called(r, token=here, **again))["content"] == [{"type": "text", "text": "done"}]


def test_a_state_is_of_one_tool_and_not_of_another_with_the_same_route() -> None:
    scripted = ScriptedBackend()
    scripted.asks(InputRequired(ASKS, "step 1"))
    ask, twin = tool("ask"), tool("twin", scopes=("ask:use",))
    assert ask.route_digest == twin.route_digest
    with running_registry([ask, twin], [binding("bot", ("ask:use",))], backend=scripted) as r:
        state = result(called(r, capabilities=ELICITS))["requestState"]
        again = {"capabilities": ELICITS, "inputResponses": ANSWERS, "requestState": state}

        assert called(r, name="twin", **again).status_code == 400
        assert result(called(r, **again))["content"] == [{"type": "text", "text": "done"}]


def test_a_state_of_one_replica_is_good_at_another_with_the_same_keys_alone(tmp_path: Path) -> None:
    """The other is a process of its own: nothing but the folder of keys is common to both."""
    grants = (binding("bot", ("ask:use",)),)
    shared, own = ({"keys": str(make_private(tmp_path / name))} for name in ("shared", "own"))
    config = configuration(tmp_path / "replica", egress={"loopback": True}, assertion=shared)
    with answering(lambda _: Answer(b'{"done": true}')) as port, process(config) as other:
        ask = tool("ask", backend=backend(port))
        other.publish(ask, bindings=grants)

        def answered_there(assertion: dict[str, str]) -> httpx.Response:
            scripted = ScriptedBackend()
            scripted.asks(InputRequired(ASKS, "step 1"))
            with running_registry([ask], grants, backend=scripted, assertion=assertion) as here:
                state = result(called(here, capabilities=ELICITS))["requestState"]
                params = {"name": "ask", "inputResponses": ANSWERS, "requestState": state}
                body = message("tools/call", params, capabilities=ELICITS)
                headers = {**here.auth("team", "bot"), **fields_of(body, STATELESS)}
                return here.http.post(other.url + "/mcp/direct", json=body, headers=headers)

        assert result(answered_there(shared))["structuredContent"] == {"done": True}
        assert answered_there(own).status_code == 400


def test_a_state_longer_than_its_bound_is_not_opened(
    asking: RunningRegistry, scripted: ScriptedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    for length, status in ((48_000, 200), (50_000, 400)):
        scripted.asks(InputRequired(ASKS, "x" * length))
        with monkeypatch.context() as lenient:
            lenient.setattr(request_state, "MOST", 10**6)  # or it would not even be sealed
            state = result(called(asking, capabilities=ELICITS))["requestState"]
        assert (len(state) <= request_state.MOST) is (status == 200)

        again = called(asking, capabilities=ELICITS, inputResponses=ANSWERS, requestState=state)

        assert again.status_code == status
