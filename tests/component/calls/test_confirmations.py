"""Calls that a person confirms one by one: asked for, bound to the very call, used once, never a sign of a hidden tool."""

import contextlib
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from realparts.redis_server import Redis
from registry_harness import ManualClock, RunningRegistry, binding, running_registry, tool
from scripted_backend import ScriptedBackend, called, result
from toolcrib.wire.confirmations import CallDecision, CallsReport, CallsTold, ConfirmableCall
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.calls.assertions.keys import make_private
from toolcrib_registry.calls.backends.port import InputRequired

ASKED = {"amount": 5, "to": "Ada"}
HUMAN = "alice@example.com"
GRANTS = (binding("bot", ("ask:use",)), binding("other", ("ask:use",)))
HANDSHAKE = "2025-11-25"
ELICITS = {"elicitation": {}}


def guarded(**fields: Any) -> PublishedTool:
    return tool("ask", confirm=True, **fields)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def made() -> ScriptedBackend:
    """Its `given` are the calls that were made."""
    backend = ScriptedBackend()
    backend.answers()
    return backend


@pytest.fixture
def r(made: ScriptedBackend, clock: ManualClock) -> Iterator[RunningRegistry]:
    with running_registry([guarded()], GRANTS, backend=made, clock=clock) as running:
        yield running


def call(r: RunningRegistry, arguments: dict[str, Any] = ASKED, who: str = "bot") -> httpx.Response:
    return r.http.post(f"{r.url}/tools/ask", headers=r.auth("team", who), json=arguments)


def asked(r: RunningRegistry, arguments: dict[str, Any] = ASKED, *others: ConfirmableCall) -> ConfirmableCall:
    """A call that has to be confirmed, as the operator hears of it, who knows of `others`."""
    answer = call(r, arguments)
    assert answer.status_code == 409, answer.text
    key = answer.json()["confirmation"]
    return next(each for each in tell(r, *others).waiting if each.key == key)


def tell(r: RunningRegistry, *calls: ConfirmableCall, replicas: int = 1) -> CallsReport:
    body = CallsTold(epoch=1, replicas=replicas, calls=calls)
    answer = r.admin("POST", "/v1/admin/calls", content=body.model_dump_json())
    assert answer.status_code == 200, answer.text
    return CallsReport.model_validate(answer.json())


def decided(
    waiting: ConfirmableCall, decision: CallDecision = CallDecision.CONFIRMED, by: str = HUMAN, **changed: Any
) -> ConfirmableCall:
    return waiting.model_copy(update={"decision": decision, "decided_by": by, **changed})


def events(r: RunningRegistry) -> dict[str, int]:
    lines = [
        line for line in r.metrics().splitlines() if line.startswith("toolcrib_call_confirmations_total")
    ]
    return {line.split('"')[1]: int(float(line.rsplit(" ", 1)[1])) for line in lines}


def test_a_call_waits_for_a_person_and_is_then_made_once(
    r: RunningRegistry, made: ScriptedBackend, clock: ManualClock
) -> None:
    first, second = call(r), call(r)
    problem = first.json()
    assert (first.status_code, problem["code"]) == (409, "confirmation_needed")
    assert first.headers["content-type"] == "application/problem+json"
    assert problem["command"] == f"toolcrib calls confirm {problem['confirmation']}"
    assert (problem["command"] in problem["detail"], problem["expires_in"] in (299, 300)) == (True, True)
    assert "run `command`" in problem["hint"]
    assert second.json()["confirmation"] == problem["confirmation"], "asked again, it is the same"
    assert "toolcrib_calls_awaiting_confirmation 1.0" in r.metrics()

    (waiting,) = tell(r).waiting
    assert waiting.key == problem["confirmation"]
    assert (waiting.tool_id, waiting.agent) == ("team/ask", "team/bot")
    assert json.loads(waiting.arguments) == ASKED
    assert made.given == []

    assert tell(r, decided(waiting)).waiting == ()
    assert call(r).status_code == 200
    assert len(made.given) == 1
    assert tell(r, decided(waiting)).used == (waiting.id,)

    again = call(r)
    assert (again.status_code, len(made.given)) == (409, 1)
    assert again.json()["confirmation"] != waiting.key
    assert events(r) == {"asked": 2, "confirmed": 1, "used": 1, "rejected": 0, "expired": 0}


def test_without_the_annotation_nobody_is_asked(r: RunningRegistry, made: ScriptedBackend) -> None:
    r.publish([tool("ask")])
    assert call(r).status_code == 200


@pytest.mark.parametrize("change", ["arguments", "caller", "definition", "route", "recreated"])
def test_a_confirmation_is_good_for_nothing_but_the_call_that_was_shown(
    r: RunningRegistry, made: ScriptedBackend, change: str
) -> None:
    tell(r, decided(asked(r)))

    if change == "arguments":
        tried = call(r, {**ASKED, "amount": 5_000})
    elif change == "caller":
        tried = call(r, who="other")
    else:
        fields: dict[str, Any] = {
            "definition": {"description": "Pays."},
            "route": {"tags": ("t",)},
            "recreated": {"uid": "another"},
        }[change]
        r.publish([guarded(**fields)])
        tried = call(r)

    assert (tried.status_code, made.given) == (409, [])
    if change in ("arguments", "caller"):
        assert call(r).status_code == 200, "of the call that was shown nothing is lost"


def test_an_account_of_the_same_name_that_was_recreated_inherits_no_confirmation(r: RunningRegistry) -> None:
    def pay(uid: str) -> httpx.Response:
        return r.http.post(f"{r.url}/tools/ask", headers=r.auth("team", "bot", uid=uid), json=ASKED)

    assert pay("first").status_code == 409
    (waiting,) = tell(r).waiting
    tell(r, decided(waiting))
    assert pay("second").status_code == 409
    assert pay("first").status_code == 200


def test_the_order_of_arguments_does_not_matter(r: RunningRegistry) -> None:
    tell(r, decided(asked(r)))
    assert call(r, dict(reversed(ASKED.items()))).status_code == 200


@pytest.mark.real
@pytest.mark.parametrize(
    "forged",
    [
        {"arguments": '{"amount": 1, "to": "Ada"}'},
        {"expires_at": 4_000_000_000},
        {"id": "0123456789ab"},
        {"agent": "team/other"},
        {"names": ()},
        {"seal": "0" * 64},
    ],
    ids=lambda forged: next(iter(forged)),
)
def test_who_carries_it_can_change_nothing_of_it(
    redis_server: Redis, made: ScriptedBackend, forged: dict[str, Any]
) -> None:
    with shared(redis_server, made) as r:
        waiting = asked(r)
        tell(r, decided(waiting, **forged))
        assert (call(r).status_code, made.given) == (409, [])


def test_it_ends_by_the_clock_alone(r: RunningRegistry, clock: ManualClock, made: ScriptedBackend) -> None:
    waiting = asked(r)
    tell(r, decided(waiting))
    clock.advance(299)
    r.heartbeat()
    late = asked(r, {"amount": 6}, decided(waiting))
    clock.advance(2)
    assert call(r).status_code == 409
    assert tell(r, decided(waiting), decided(late)).used == ()
    assert call(r, {"amount": 6}).status_code == 200
    assert len(made.given) == 1
    assert events(r)["expired"] == 1


def test_what_was_revoked_in_between_is_not_permitted(r: RunningRegistry, made: ScriptedBackend) -> None:
    tell(r, decided(asked(r)))
    r.publish(remove_bindings=["uid-team-bot"])
    tried = call(r)
    assert (tried.status_code, tried.json()["code"], made.given) == (403, "not_permitted", [])


@pytest.mark.parametrize("who", ["nobody", "bot"])
def test_it_is_no_sign_of_a_tool_that_the_caller_may_not_call(r: RunningRegistry, who: str) -> None:
    """Held against a tool that does not exist: equal to the byte, and nothing waits."""
    r.publish([guarded(), guarded(namespace="other")])
    hidden = {"nobody": "/tools/ask", "bot": "/tools/other%2Fask"}[who]
    told = [
        r.http.post(r.url + path, headers=r.auth("team", who), json={}) for path in (hidden, "/tools/absent")
    ]
    assert told[0].status_code == 403
    assert told[0].content == told[1].content
    assert tell(r).waiting == ()


def test_arguments_that_do_not_fit_are_shown_to_nobody(r: RunningRegistry) -> None:
    schema = {"type": "object", "properties": {"amount": {"type": "integer"}}}
    r.publish([guarded(input_schema=schema)])
    assert call(r, {"amount": "x"}).status_code == 400
    assert tell(r).waiting == ()


def test_people_see_no_secrets_and_nothing_that_hides(r: RunningRegistry) -> None:
    schema = {"type": "object", "properties": {"password": {"type": "string", "writeOnly": True}}}
    r.publish([guarded(input_schema=schema)])
    waiting = asked(r, {"password": "hunter2", "to": "A\u202eda\u200b"})
    assert "hunter2" not in waiting.arguments
    assert waiting.arguments.isascii()
    assert waiting.arguments.isprintable()
    tell(r, decided(waiting, accepted_hidden=7))
    assert call(r, {"password": "hunter3", "to": "A\u202eda\u200b"}).status_code == 409, (
        "yet it is bound to them"
    )


def test_what_cannot_be_shown_whole_cannot_be_confirmed(r: RunningRegistry) -> None:
    told = call(r, {"text": "x" * 9_000})
    assert (told.status_code, told.json()["code"]) == (503, "confirmation_unavailable")
    assert "A person can be shown 8,192" in told.json()["detail"]


def test_a_rejected_call_is_told_so(r: RunningRegistry, made: ScriptedBackend) -> None:
    tell(r, decided(asked(r), CallDecision.REJECTED))
    told = call(r)
    assert (told.status_code, told.json()["code"], made.given) == (403, "confirmation_rejected", [])
    assert events(r)["rejected"] == 1


@pytest.mark.parametrize(
    "by",
    [
        f"{prefix}system:serviceaccount:team:bot"
        for prefix in ("", "oidc:", "corp-", "corp_", "corp.", "https://a#", "x")
    ],
)
def test_the_caller_does_not_confirm_its_own_call(r: RunningRegistry, made: ScriptedBackend, by: str) -> None:
    tell(r, decided(asked(r), by=by))
    told = call(r)
    assert (told.status_code, told.json()["code"], made.given) == (403, "confirmation_rejected", [])


def test_one_agent_cannot_fill_the_list(r: RunningRegistry) -> None:
    for number in range(10):
        assert call(r, {"amount": number}).status_code == 409
    told = call(r, {"amount": 10})
    assert (told.status_code, told.json()["code"]) == (503, "confirmation_unavailable")
    assert call(r, {"amount": 1}).status_code == 409, "what waits already is still told"
    assert call(r, who="other").status_code == 409


def test_the_decision_log_says_who_confirmed_which_call(made: ScriptedBackend, tmp_path: Path) -> None:
    log = tmp_path / "decisions.jsonl"
    with running_registry([guarded()], GRANTS, backend=made, audit={"path": str(log)}) as r:
        waiting = asked(r)
        tell(r, decided(waiting))
        assert call(r).status_code == 200
    records = [json.loads(line) for line in log.read_text().splitlines()]
    calls = [each for each in records if each.get("action") == "call"]
    assert [(c["outcome"], c["confirmation"], c.get("confirmed_by")) for c in calls] == [
        ("confirmation_needed", waiting.key, None),
        ("ok", waiting.key, HUMAN),
    ]


# ---- several replicas ----


@contextlib.contextmanager
def shared(
    redis: Redis, made: ScriptedBackend, keys: Path | None = None, **settings: Any
) -> Iterator[RunningRegistry]:
    counters = {"kind": "redis", "url": redis.url, "timeout": 5.0}
    assertion = {} if keys is None else {"assertion": {"keys": str(keys)}}
    with running_registry([guarded()], GRANTS, backend=made, counters=counters, **assertion, **settings) as r:
        yield r


@contextlib.contextmanager
def two(redis: Redis, made: ScriptedBackend, folder: Path) -> Iterator[Sequence[RunningRegistry]]:
    keys = make_private(folder / "keys")
    with shared(redis, made, keys) as a, shared(redis, made, keys) as b:
        yield a, b


@pytest.mark.real
def test_what_one_replica_asked_for_is_used_at_another_and_there_alone(
    redis_server: Redis, made: ScriptedBackend, tmp_path: Path
) -> None:
    with two(redis_server, made, tmp_path) as (a, b):
        waiting = asked(a)
        for replica in (a, b):
            tell(replica, waiting, replicas=2)
        assert call(b).json()["confirmation"] == waiting.key, "another replica asks for the same one"
        for replica in (a, b):
            tell(replica, decided(waiting), replicas=2)
        assert (call(b).status_code, call(a).status_code) == (200, 409)
        assert len(made.given) == 1


@pytest.mark.real
def test_of_many_uses_at_one_time_on_two_replicas_one_is_made(
    redis_server: Redis, made: ScriptedBackend, tmp_path: Path
) -> None:
    with two(redis_server, made, tmp_path) as (a, b), ThreadPoolExecutor(16) as pool:
        for number in range(5):
            waiting = asked(a, {"amount": number})
            for replica in (a, b):
                tell(replica, decided(waiting), replicas=2)
            tried = list(pool.map(lambda at, n=number: call(at, {"amount": n}).status_code, [a, b] * 8))  # type: ignore[misc]
            assert sorted(tried) == [200] + [409] * 15
        assert len(made.given) == 5


def test_without_a_shared_store_several_replicas_refuse(made: ScriptedBackend) -> None:
    with running_registry([guarded()], GRANTS, backend=made, counters={"several": True}) as r:
        told = call(r)
        assert (told.status_code, told.json()["code"]) == (503, "confirmation_unavailable")
    with running_registry([guarded()], GRANTS, backend=made) as r:
        waiting = asked(r)
        tell(r, decided(waiting), replicas=2)
        assert call(r).json()["code"] == "confirmation_unavailable", "the operator knows of another replica"
        assert made.given == []
        tell(r, decided(waiting))
        assert call(r).status_code == 200


def test_counters_in_memory_know_no_confirmation_of_an_earlier_process(
    made: ScriptedBackend, tmp_path: Path
) -> None:
    keys = {"assertion": {"keys": str(make_private(tmp_path / "keys"))}}
    with running_registry([guarded()], GRANTS, backend=made, **keys) as before:
        waiting = asked(before)
        tell(before, decided(waiting))
        assert call(before).status_code == 200
    with running_registry([guarded()], GRANTS, backend=made, **keys) as after:
        tell(after, decided(waiting))
        assert call(after).status_code == 409
    assert len(made.given) == 1


@pytest.mark.real
def test_while_the_store_is_away_nothing_is_made(made: ScriptedBackend) -> None:
    with Redis() as redis, shared(redis, made) as r:
        tell(r, decided(asked(r)))
        redis.close()
        told = call(r)
        assert (told.status_code, told.json()["code"], made.given) == (503, "limits_unavailable", [])


# ---- MCP ----


def test_a_client_of_2026_asks_its_user_and_repeats_the_call(
    r: RunningRegistry, made: ScriptedBackend
) -> None:
    told = result(called(r, capabilities=ELICITS, arguments=ASKED))
    assert told["resultType"] == "input_required"
    (question,) = told["inputRequests"].values()
    assert question["method"] == "elicitation/create"
    (waiting,) = tell(r).waiting
    assert f"toolcrib calls confirm {waiting.key}" in question["params"]["message"]
    (name,) = told["inputRequests"]

    accepted = {"capabilities": ELICITS, "arguments": ASKED, "inputResponses": {name: {"action": "accept"}}}
    assert result(called(r, **accepted))["resultType"] == "input_required", "the user's word alone is none"
    assert made.given == []
    tell(r, decided(waiting))
    assert result(called(r, **accepted))["resultType"] == "complete"
    assert made.given[0].responses is None, "the tool is not told"


def test_a_user_who_declines_is_not_asked_again(r: RunningRegistry) -> None:
    told = result(called(r, capabilities=ELICITS, arguments=ASKED))
    declined = {name: {"action": "decline"} for name in told["inputRequests"]}
    again = result(called(r, capabilities=ELICITS, arguments=ASKED, inputResponses=declined))
    assert (again["isError"], again["_meta"]["toolcrib.dev/code"]) == (True, "confirmation_needed")


def test_answers_to_what_a_tool_asks_are_shown_and_are_part_of_the_call(
    r: RunningRegistry, made: ScriptedBackend
) -> None:
    made.asks(InputRequired({"to": {"method": "elicitation/create", "params": {"message": "To whom?"}}}, "1"))
    called(r, arguments=ASKED)
    (first,) = tell(r).waiting
    tell(r, decided(first))
    state = result(called(r, capabilities=ELICITS, arguments=ASKED))["requestState"]

    def answered(name: str) -> dict[str, Any]:
        answers = {"to": {"action": "accept", "content": {"name": name}}}
        return result(called(r, arguments=ASKED, inputResponses=answers, requestState=state))

    assert answered("Ada")["isError"]
    (second,) = tell(r).waiting
    shown = json.loads(second.arguments)
    assert (shown["arguments"], shown["inputResponses"]["to"]["content"]) == (ASKED, {"name": "Ada"})
    tell(r, decided(second))
    assert answered("Eve")["isError"], "nobody has seen this name"
    assert len(made.given) == 1
    assert answered("Ada")["content"] == [{"type": "text", "text": "done"}]
    assert len(made.given) == 2


@pytest.mark.parametrize("version", [HANDSHAKE, "2026-07-28"])
def test_other_clients_are_told_the_command_as_an_error(r: RunningRegistry, version: str) -> None:
    told = result(called(r, version, arguments=ASKED))
    (waiting,) = tell(r).waiting
    assert told["isError"]
    assert f"toolcrib calls confirm {waiting.key}" in told["content"][0]["text"]
    assert told["_meta"]["toolcrib.dev/code"] == "confirmation_needed"

    tell(r, decided(waiting))
    assert "isError" not in result(called(r, version, arguments=ASKED))
