"""Arguments that a person does not see whole: what is hidden is counted, sealed, and accepted by its number or not confirmed."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from registry_harness import RunningRegistry, binding, running_registry, tool
from scripted_backend import ScriptedBackend, called, result
from toolcrib.wire.confirmations import CallDecision, CallsReport, CallsTold, ConfirmableCall
from toolcrib_registry.calls.backends.port import InputRequired

KEY = "sk-proj-abcdefghijklmnopqrst"
MARK = f"***({len(KEY)} characters hidden)"
SCHEMA = {"type": "object", "properties": {"pin": {"type": "string", "format": "password"}}}


@pytest.fixture
def made() -> ScriptedBackend:
    backend = ScriptedBackend()
    backend.answers()
    return backend


@pytest.fixture
def r(made: ScriptedBackend) -> Iterator[RunningRegistry]:
    guarded = tool("ask", confirm=True, input_schema=SCHEMA)
    with running_registry([guarded], [binding("bot", ("ask:use",))], backend=made) as running:
        yield running


def call(r: RunningRegistry, arguments: dict[str, Any]) -> httpx.Response:
    return r.http.post(f"{r.url}/tools/ask", headers=r.auth("team", "bot"), json=arguments)


def tell(r: RunningRegistry, *calls: ConfirmableCall) -> CallsReport:
    body = CallsTold(epoch=1, replicas=1, calls=calls)
    answer = r.admin("POST", "/v1/admin/calls", content=body.model_dump_json())
    assert answer.status_code == 200, answer.text
    return CallsReport.model_validate(answer.json())


def waiting(r: RunningRegistry, arguments: dict[str, Any]) -> ConfirmableCall:
    assert call(r, arguments).status_code == 409
    (found,) = tell(r).waiting
    return found


def confirm(r: RunningRegistry, asked: ConfirmableCall, **changed: Any) -> None:
    update = {"decision": CallDecision.CONFIRMED, "decided_by": "alice", **changed}
    tell(r, asked.model_copy(update=update))


@pytest.mark.parametrize(
    ("arguments", "shown", "hidden"),
    [
        ({"command": f"rm -rf / # {KEY}"}, {"command": f"rm -rf / # {MARK}"}, len(KEY)),
        ({"steps": [{"run": f"{KEY}; reboot"}]}, {"steps": [{"run": f"{MARK}; reboot"}]}, len(KEY)),
        ({"token": "rm -rf /"}, {"token": "rm -rf /"}, 0),
        ({f"# {KEY}": "rm"}, {f"# {KEY}": "rm"}, 0),
        ({"pin": "rm -rf /", "to": "Eve"}, {"pin": "***(8 characters hidden)", "to": "Eve"}, 8),
        ({"text": "x" * 7_000 + f"{KEY} rm"}, {"text": "x" * 7_000 + f"{KEY} rm"}, 0),
    ],
)
def test_a_person_sees_what_the_caller_wrote_around_a_credential(
    r: RunningRegistry, arguments: dict[str, Any], shown: dict[str, Any], hidden: int
) -> None:
    asked = waiting(r, arguments)
    assert (json.loads(asked.arguments), asked.hidden) == (shown, hidden)


def test_characters_that_hide_or_reorder_are_shown_as_escapes_in_keys_too(r: RunningRegistry) -> None:
    asked = waiting(r, {"a\u202eb\u0007": {"\u200bto": ["\x1b[2Jrm", "\u2066x"]}})
    assert asked.arguments == r'{"a\u202eb\u0007": {"\u200bto": ["\u001b[2Jrm", "\u2066x"]}}'


def test_hidden_characters_are_accepted_by_their_number(r: RunningRegistry, made: ScriptedBackend) -> None:
    arguments = {"command": f"deploy {KEY}"}
    confirm(r, asked := waiting(r, arguments), accepted_hidden=len(KEY))
    assert asked.hidden == len(KEY)
    assert (call(r, arguments).status_code, len(made.given)) == (200, 1)


@pytest.mark.parametrize("accepted", [0, 1, len(KEY) - 1, len(KEY) + 1, 10_000])
def test_a_confirmation_with_another_number_or_none_lets_no_call_through(
    r: RunningRegistry, made: ScriptedBackend, accepted: int
) -> None:
    arguments = {"command": f"deploy {KEY}"}
    confirm(r, waiting(r, arguments), accepted_hidden=accepted)
    told = call(r, arguments)
    assert (told.status_code, told.json()["code"], made.given) == (403, "confirmation_rejected", [])
    assert f"does not accept the {len(KEY)} hidden characters" in told.json()["detail"]


@pytest.mark.parametrize("number", [0, 1, len(KEY) - 1, len(KEY) + 1])
def test_who_carries_a_call_cannot_make_less_of_what_is_hidden(
    r: RunningRegistry, made: ScriptedBackend, number: int
) -> None:
    arguments = {"command": f"deploy {KEY}"}
    confirm(r, waiting(r, arguments), hidden=number, accepted_hidden=number)
    assert (call(r, arguments).status_code, made.given) == (409, [])


def test_a_rejection_needs_no_number(r: RunningRegistry) -> None:
    arguments = {"command": f"deploy {KEY}"}
    confirm(r, waiting(r, arguments), decision=CallDecision.REJECTED)
    assert call(r, arguments).json()["detail"].startswith("A person rejected this call")


def test_answers_to_what_a_tool_asks_are_counted_as_arguments_are(
    r: RunningRegistry, made: ScriptedBackend
) -> None:
    made.asks(InputRequired({"to": {"method": "elicitation/create", "params": {"message": "To whom?"}}}, "1"))
    arguments = {"pin": "1234"}
    called(r, arguments=arguments)
    (first,) = tell(r).waiting
    confirm(r, first, accepted_hidden=4)
    state = result(called(r, capabilities={"elicitation": {}}, arguments=arguments))["requestState"]
    answers = {"to": {"action": "accept", "content": {"name": f"Eve # {KEY}"}}}
    called(r, arguments=arguments, inputResponses=answers, requestState=state)
    (second,) = tell(r).waiting
    shown = json.loads(second.arguments)
    assert shown["inputResponses"]["to"]["content"] == {"name": f"Eve # {MARK}"}
    assert second.hidden == 4 + len(KEY)


def test_the_log_hides_as_much_as_before(made: ScriptedBackend, tmp_path: Any) -> None:
    log = tmp_path / "decisions.jsonl"
    audit = {"path": str(log), "arguments": "plain"}
    with running_registry(
        [tool("ask", confirm=True, input_schema=SCHEMA)],
        [binding("bot", ("ask:use",))],
        backend=made,
        audit=audit,
    ) as r:
        call(r, {"command": f"rm -rf / # {KEY}", "token": "x", "pin": "1234"})
    records = [json.loads(line) for line in log.read_text().splitlines()]
    (written,) = [each["arguments"] for each in records if each.get("action") == "call"]
    assert written == {"command": "***", "token": "***", "pin": "***"}
