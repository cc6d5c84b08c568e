"""What a record tells besides the decision: the session that its caller claims, all tools of a load, no secrets."""

import asyncio
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from decision_logs import all_records, key_file, records
from mcp_requests import VERSIONS, ask
from realparts.processes import wait_until
from registry_harness import ManualClock, RunningRegistry, backend, binding, running_registry, tool
from stub_server import Answer, Asked, answering
from toolcrib.audit import policy_records
from toolcrib.authorizer import Action, Decision, Reason
from toolcrib.identity import Identity
from toolcrib.snapshot import Snapshot
from toolcrib.telemetry.logs import request_id
from toolcrib.wire.publish import Publish, Revision
from toolcrib_cli import decision_records as reading
from toolcrib_registry.audit import setup
from toolcrib_registry.settings_sections import Audit

pytestmark = pytest.mark.guarantee

MANY = [f"tool-{number:04}" for number in range(500)]
SCHEMA = {"type": "object", "properties": {"pin_code": {"type": "string", "writeOnly": True}}}


class Counts:
    """Nobody counts."""

    def written(self, records: int, seq: int) -> None: ...

    def lost(self, records: int) -> None: ...

    def failed(self) -> None: ...


@pytest.fixture
def asked() -> list[Asked]:
    return []


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "decisions.jsonl"


@pytest.fixture
def registry(asked: list[Asked], log: Path) -> Iterator[RunningRegistry]:
    def answer(request: Asked) -> Answer:
        asked.append(request)
        return Answer(b"{}")

    with answering(answer) as port:
        tools = [tool("calculator", backend=backend(port), input_schema=SCHEMA)]
        tools += [tool(name, scopes=("many:use",)) for name in MANY]
        granted = [binding("bot"), binding("bot", ("many:use",), name="many")]
        audit = {"path": str(log), "key_file": key_file(log.parent), "arguments": "plain"}
        with running_registry(tools, granted, audit=audit) as made:
            yield made


def call(registry: RunningRegistry, *sessions: str, **arguments: Any) -> None:
    headers = [*registry.auth("team", "bot").items(), *(("x-toolcrib-session", s) for s in sessions)]
    body = {"tool": "calculator", "arguments": arguments}
    assert registry.http.post(f"{registry.url}/v1/call", headers=headers, json=body).status_code == 200


def of(log: Path, action: str, number: int = 1) -> list[dict[str, Any]]:
    """The records of an action, once there are so many."""
    wait_until(lambda: sum(r["action"] == action for r in records(log)) >= number)
    return [r for r in records(log) if r["action"] == action]


def test_the_session_that_a_caller_claims_is_recorded_and_goes_no_further(
    registry: RunningRegistry, asked: list[Asked], log: Path
) -> None:
    call(registry, "heist-1.a_B/7")
    (recorded,) = of(log, "call")

    assert recorded["session"] == "heist-1.a_B/7"
    (request,) = asked
    assert not any("heist-1" in f"{name}{value}" for name, value in request.headers.items())
    assert b"heist-1" not in request.body
    assert "heist-1" not in registry.metrics()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_is_recorded_of_what_comes_over_mcp_too(
    registry: RunningRegistry, log: Path, version: str
) -> None:
    registry.http.headers["x-toolcrib-session"] = "s/1"
    try:
        ask(registry, "/mcp/direct", "tools/call", {"name": "calculator", "arguments": {}}, version=version)
        ask(registry, "/mcp/direct", "tools/list", version=version)
    finally:
        del registry.http.headers["x-toolcrib-session"]

    assert [r.get("session") for r in (*of(log, "call"), *of(log, "list"))] == ["s/1", "s/1"]


@pytest.mark.parametrize(
    "sessions",
    [("a",), ("a/",), ("/1",), ("a/1234567",), (f"{'a' * 65}/1",), ("a/-1",), ("a b/1",), ("a/1\tx",), ("a/1", "a/1")],
)  # fmt: skip
def test_a_session_of_another_form_is_left_out_and_counted(
    registry: RunningRegistry, log: Path, sessions: tuple[str, ...]
) -> None:
    call(registry, *sessions)
    call(registry)

    assert not any("session" in r for r in of(log, "call", 2))
    assert "toolcrib_session_claims_ignored_total 1.0" in registry.metrics()


def test_a_session_is_no_part_of_what_is_folded_and_nobody_has_one(
    registry: RunningRegistry, log: Path
) -> None:
    for number in range(5):
        for headers in (registry.auth("team", "bot"), {}):
            told = {**headers, "x-toolcrib-session": f"s/{number}"}
            registry.http.post(f"{registry.url}/v1/call", headers=told, json={"tool": "vault"})

    refused = of(log, "call", 2)
    assert sorted((r["subject"] is None, r.get("session")) for r in refused) == [
        (False, "s/0"),
        (True, None),
    ]


def test_a_load_is_one_record_with_its_tools_and_each_binding_once(
    registry: RunningRegistry, log: Path
) -> None:
    names = ["calculator", "team/calculator", *MANY[:3], "team/nothing"]
    body = {"tools": names}
    registry.http.post(f"{registry.url}/v1/load", headers=registry.auth("team", "bot"), json=body)

    given, refused = sorted(of(log, "load", 2), key=lambda r: not r["allowed"])
    assert refused["tool"] == "team/nothing"
    assert [t["tool"] for t in given["tools"]] == ["team/calculator", *(f"team/{name}" for name in MANY[:3])]
    assert all(t["allowed"] and t["digest"] for t in given["tools"])
    refs = [given["bindings"][t["binding"]]["ref"].rpartition(" ")[2] for t in given["tools"]]
    assert refs == ["team/bot", "team/many", "team/many", "team/many"]
    assert len(given["bindings"]) == 2
    assert given["outcome"] == "ok"


def test_a_large_load_is_split_into_records_of_64_kib_at_most(log: Path) -> None:
    identity = Identity("https://issuer.test", "system:serviceaccount:team:bot", 4e9, cluster=True)
    seen: Any = SimpleNamespace(identity=identity, snapshot=SimpleNamespace(revision="1.1"))
    grants = [binding("bot", name=f"grant-{number % 400:04}") for number in range(500)]
    found = [
        (tool(name), Decision(True, Reason.GRANTED, grant)) for name, grant in zip(MANY, grants, strict=True)
    ]
    made = setup.opened(Audit(path=str(log)), "registry-0", ManualClock(1_800_000_000.0), Counts())
    made.loaded(seen, found)
    made.close()

    several = [r for r in records(log) if r["action"] == "load"]
    assert len(several) > 1
    assert max(len(line) for line in log.read_bytes().splitlines()) <= 64 * 1024
    told = [(t["tool"], r["bindings"][t["binding"]]["ref"]) for r in several for t in r["tools"]]
    assert told == [(t.tool_id, decision.binding.ref) for t, decision in found if decision.binding]
    counted = reading.summary(several)
    assert [key[2] for key, row in counted.items() if row.allowed == 1] == [f"team/{name}" for name in MANY]
    assert [key[2] for key in reading.summary(several, "tool-0001")] == ["team/tool-0001"]
    assert sum(reading.Filter(tool="tool-0142")(r) for r in several) == 1


def test_arguments_recorded_plain_show_no_secret(registry: RunningRegistry, log: Path) -> None:
    call(registry, pin_code="4711", api_key="hunter2", note="Bearer abcdefghijklmnop", expression="2 + 3")

    (recorded,) = of(log, "call")
    assert recorded["arguments"] == {
        "pin_code": "***",
        "api_key": "***",
        "note": "***",
        "expression": "2 + 3",
    }
    assert not any(word in json.dumps(records(log)) for word in ("4711", "hunter2", "abcdefghijklmnop"))


@pytest.mark.parametrize("mode", ["lenient", "strict"])
def test_what_is_recorded_later_comes_before_any_other_record_and_before_the_next_policy(
    mode: Literal["lenient", "strict"], log: Path
) -> None:
    identity = Identity("https://issuer.test", "system:serviceaccount:team:bot", 4e9, cluster=True)
    settings = Audit(path=str(log), mode=mode, key_file=key_file(log.parent))
    made = setup.opened(settings, "registry-0", ManualClock(1_800_000_000.0), Counts())

    def later(name: str) -> None:
        request_id.set(f"r-{name}")
        arguments = (Action.CALL, identity, name, tool(name), Decision(True, Reason.GRANTED), "1.1")
        made.later(partial(made.decided, *arguments, outcome="ok"))
        request_id.set("another")

    after = Snapshot().apply(Publish(base=None, to=Revision(epoch=1, seq=2), tools=(tool("vault"),)))

    async def work() -> None:
        later("first")
        await made.begun(identity, tool("begun"), Decision(True, Reason.GRANTED), "1.1", {})
        later("second")
        made.refused(Action.CALL, "not_permitted", identity, "refused")
        later("third")
        made.policy_changed(after)
        later("fourth")
        made.close()

    asyncio.run(work())
    kept = [r for r in all_records(log) if r["action"] in ("call", policy_records.START)]
    told = [(r["action"], r.get("tool"), r.get("request_id")) for r in kept]
    assert told == [
        ("call", "team/first", "r-first"),
        *([("call", "team/begun", "another")] if mode == "strict" else []),
        ("call", "team/second", "r-second"),
        ("call", "refused", "another"),
        ("call", "team/third", "r-third"),
        (policy_records.START, None, None),
        ("call", "team/fourth", "r-fourth"),
    ]


def test_a_call_that_cannot_be_recorded_costs_no_other_its_record_and_is_counted(
    log: Path, caplog: pytest.LogCaptureFixture
) -> None:
    identity = Identity("https://issuer.test", "system:serviceaccount:team:bot", 4e9, cluster=True)
    made = setup.opened(Audit(path=str(log)), "registry-0", ManualClock(1_800_000_000.0), Counts())

    def fail() -> None:
        raise ValueError("it cannot be made")

    async def work() -> None:
        made.later(fail)
        arguments = (Action.CALL, identity, "x", tool("x"), Decision(True, Reason.GRANTED), "1.1")
        made.later(partial(made.decided, *arguments, outcome="ok"))
        made.close()

    asyncio.run(work())
    assert [r["tool"] for r in records(log) if r["action"] == "call"] == ["team/x"]
    (gap,) = [r for r in records(log) if r["action"] == "audit.gap"]
    assert [(lost["reason"], lost["action"], lost["count"]) for lost in gap["lost"]] == [
        ("not_recorded", "call", 1)
    ]
    assert "a call could not be recorded" in caplog.text
