"""A registry's own log is replayed: with limits, a strict log, a full disk; and nothing private stands in it."""

from __future__ import annotations

import errno
import itertools
import json
import os
import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import published
from decision_logs import all_records, files_of, key_file, replayed, told, verify
from published import account
from realparts.processes import wait_until
from registry_harness import ISSUER, ManualClock, RunningRegistry, backend, binding, running_registry, tool
from stub_server import Answer, Asked, answering
from toolcrib.audit import chain as audit_chain
from toolcrib.audit.callers import caller_of
from toolcrib.audit.replay import Why
from toolcrib.authorizer import Action
from toolcrib.resources.bindings import SubjectKind
from toolcrib.resources.tools import ToolState
from toolcrib.snapshot import Snapshot
from toolcrib.wire.publish import Publish, PublishedLimits, PublishedSubject, Revision
from toolcrib_registry.audit import evidence, setup
from toolcrib_registry.audit.files import RotatingFile
from toolcrib_registry.settings_sections import Audit

pytestmark = pytest.mark.guarantee


class Counts:
    """Nobody counts."""

    def written(self, records: int, seq: int) -> None: ...

    def lost(self, records: int) -> None: ...

    def failed(self) -> None: ...


@pytest.fixture
def port() -> Iterator[int]:
    with answering(lambda _: Answer(b"{}")) as found:
        yield found


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "decisions.jsonl"


def audit(log: Path, **settings: Any) -> dict[str, Any]:
    return {"path": str(log), "key_file": key_file(log.parent), **settings}


def ask(r: RunningRegistry, headers: dict[str, str], *names: str) -> None:
    """A list, a search, a load, and each name described and called."""
    r.http.get(r.url, headers=headers)
    r.http.post(f"{r.url}/v1/search", headers=headers, json={"query": "calculate"})
    r.http.post(f"{r.url}/v1/load", headers=headers, json={"tools": list(names)})
    for name in names:
        r.http.post(f"{r.url}/v1/describe", headers=headers, json={"tool": name})
        r.http.post(f"{r.url}/v1/call", headers=headers, json={"tool": name, "arguments": {}})


def there(log: Path, holds: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
    wait_until(lambda: holds(all_records(log)))
    return all_records(log)


@pytest.mark.parametrize("mode", ["lenient", "strict"])
def test_what_limits_decided_is_marked_and_all_else_is_decided_alike(log: Path, port: int, mode: str) -> None:
    limited = PublishedLimits(per_minute=1)
    grants = [
        binding("bot", name="a-limited", limits=limited),
        binding("bot", name="b-limited", limits=limited),
    ]
    tools = [tool("calculator", backend=backend(port)), tool("vault")]
    with running_registry(tools, grants, audit=audit(log, mode=mode)) as r:
        for _ in range(3):
            ask(r, r.auth("team", "bot"), "calculator", "vault", "nothing")
        ask(r, r.auth("team", "bot", scopes="calculator:use"), "calculator")

    judged = replayed(all_records(log))
    assert set(told(judged)) == {"equal", Why.NOT_DECIDED}, told(judged)
    assert all("repeated" in j.record for j in judged if j.why)
    calls = [j.record for j in judged if j.record["action"] == "call" and j.record["allowed"]]
    assert {c["outcome"] for c in calls if c.get("phase") != "begin"} == {"ok", "limit_exceeded"}
    assert {c["binding"]["ref"][-9:] for c in calls if c.get("charged")} == {"b-limited"}


def test_a_call_that_was_cut_is_not_decided_again(log: Path) -> None:
    def answer(_: Asked) -> Answer:
        r.publish(remove_bindings=["uid-team-bot"])
        return Answer(b"{}")

    with answering(answer) as port:
        tools = [tool("calculator", backend=backend(port))]
        with running_registry(tools, [binding("bot")], audit=audit(log)) as r:
            r.http.post(f"{r.url}/v1/call", headers=r.auth("team", "bot"), json={"tool": "calculator"})
    (judged,) = replayed(all_records(log))
    assert (judged.record["outcome"], judged.why) == ("revoked", Why.NOT_DECIDED)


def test_a_log_holds_what_decides_and_nothing_that_is_private(log: Path, port: int) -> None:
    ops = PublishedSubject(kind=SubjectKind.GROUP, issuer=ISSUER, name="system:serviceaccounts")
    given = tool("calculator", backend=backend(port), description="PRIVATE text", message="PRIVATE why",
                 state=ToolState.DEPRECATED, input_schema={"type": "object", "title": "PRIVATE"})  # fmt: skip
    grants = [binding("bot"), binding("bot", name="all", subjects=(account("team", "bot"), ops))]
    with running_registry([given], grants, audit=audit(log)) as r:
        ask(r, r.auth("team", "bot"), "calculator")

    found = all_records(log)
    (who,) = (record for record in found if record["action"] == "identity")
    assert who["groups"] == [
        "system:serviceaccounts"
    ]  # and not that of its namespace, which no binding names
    assert who["subject"] == "system:serviceaccount:team:bot"
    text = log.read_text()
    assert "PRIVATE" not in text
    assert f":{port}" not in text
    (issuers,) = (record for record in found if record["action"] == "policy.issuers")
    assert issuers["issuers"] == [{"issuer": ISSUER, "scopes": "local", "cluster": True}]
    assert set(told(replayed(found))) == {"equal"}


def test_what_could_not_be_written_is_retried_as_it_is_and_not_stated_again(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, full, tried = RotatingFile.append, threading.Event(), list[bytes]()

    def append(target: RotatingFile, data: bytes) -> None:
        if full.is_set():
            tried.append(data)
            if len(tried) < 3:
                raise OSError(errno.ENOSPC, "full")
        real(target, data)

    monkeypatch.setattr(RotatingFile, "append", append)
    with running_registry([tool("calculator")], [binding("bot")], audit=audit(log)) as r:
        full.set()
        ask(r, r.auth("team", "bot"), "calculator")
        wait_until(lambda: len(tried) >= 3)  # a log that is closed while it fails is given up
    assert set(told(replayed(all_records(log)))) == {"equal"}
    assert verify(log).findings == ()
    assert tried[0] == tried[1] == tried[2], "made once"


def test_a_file_that_is_moved_while_nothing_can_be_written_is_followed_by_one_that_is_enough_alone(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, full = RotatingFile.append, threading.Event()

    def append(target: RotatingFile, data: bytes) -> None:
        if full.is_set():
            raise OSError(errno.ENOSPC, "full")
        real(target, data)

    monkeypatch.setattr(RotatingFile, "append", append)
    with running_registry([tool("calculator")], [binding("bot")], audit=audit(log)) as r:
        ask(r, r.auth("team", "bot"), "calculator")
        there(log, lambda found: any(record["action"] == "call" for record in found))
        full.set()
        ask(r, r.auth("team", "bot"), "calculator")
        wait_until(lambda: "toolcrib_audit_write_errors_total 0.0" not in r.metrics())
        log.rename(log.with_name("decisions-moved.jsonl"))
        wait_until(log.exists)
        full.clear()
    assert verify(log).findings == ()
    for file in files_of(log):
        judged = replayed(json.loads(line) for line in file.read_bytes().splitlines())
        assert set(told(judged)) == {"equal"}


def test_a_file_that_was_moved_is_followed_by_one_that_is_enough_alone(log: Path) -> None:
    with running_registry([tool("calculator")], [binding("bot")], audit=audit(log)) as r:
        ask(r, r.auth("team", "bot"), "calculator")
        there(log, lambda found: any(record["action"] == "call" for record in found))
        log.rename(log.with_name("decisions-moved.jsonl"))
        wait_until(log.exists)
        ask(r, r.auth("team", "bot"), "calculator")
    assert len(files_of(log)) == 2
    for file in files_of(log):
        judged = replayed(json.loads(line) for line in file.read_bytes().splitlines())
        assert told(judged) == {"equal": 5}


def test_a_stream_states_the_policy_again_after_an_hour_and_explains_its_callers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(evidence, "SEEN", 2)
    clock = ManualClock()
    policy = Snapshot().apply(Publish(to=Revision(epoch=1, seq=1), tools=(tool("calculator"),)))
    callers = [caller_of(published.bot(name=name), policy.policy) for name in ("a", "b", "c")]

    def written(*names: int) -> list[str]:
        items = [({"action": "call", "who": callers[n]}, None) for n in names]
        return [r["action"].rpartition(".")[2] for r in of.of(items)]

    of = evidence.Evidence(
        lambda action, fields: {"action": action, **fields}, (), stream=True, elapsed=clock.elapsed
    )
    assert [r["action"] for r in of.of([(None, policy)])] == ["policy.start", "policy.issuers", "policy.tool"]
    assert written(0, 1, 0) == ["identity", "call", "identity", "call", "call"]
    assert written(2, 0) == ["identity", "call", "identity", "call"]  # no more than two are remembered
    for _ in range(2):
        clock.advance(3599)
        assert written(0) == ["call"]
        clock.advance(1)
        assert written(0) == ["start", "issuers", "tool", "identity", "call"]


def test_the_hour_of_a_registrys_stream_is_that_of_its_clock(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reader, True)
    lines: queue.Queue[str] = queue.Queue()

    def read() -> None:
        with os.fdopen(reader) as file:
            for line in file:
                lines.put(json.loads(line)["action"])

    reading = threading.Thread(target=read)
    clock, names = ManualClock(), itertools.count()
    made = setup.opened(Audit(path=str(pipe)), "registry-0", clock, Counts())
    reading.start()

    def until_refused() -> list[str]:
        """What is written with the record of one more refusal."""
        made.refused(Action.DESCRIBE, "no_identity", published.bot(), f"tool-{next(names)}")
        return list(iter(lambda: lines.get(timeout=30), "describe"))

    made.policy_changed(Snapshot().apply(Publish(to=Revision(epoch=1, seq=1), tools=(tool("calculator"),))))
    try:
        assert "policy.start" in until_refused()
        clock.advance(3599)
        assert "policy.start" not in until_refused()
        clock.advance(1)
        assert [a for a in until_refused() if a.startswith("policy.")] == [
            "policy.start",
            "policy.issuers",
            "policy.tool",
        ]
    finally:
        made.close()
        reading.join(30)


def test_a_policy_larger_than_a_file_is_not_all_that_files_hold(log: Path) -> None:
    tools = [tool(f"tool-{number}") for number in range(100)]
    settings = audit(log, max_bytes=4096, keep=100)
    with running_registry([tool("calculator"), *tools], [binding("bot")], audit=settings) as r:
        for _ in range(40):
            ask(r, r.auth("team", "bot"), "calculator")
    starts = sum(r["action"] == "policy.start" for r in all_records(log))
    explaining = sum(len(str(r)) for r in all_records(log) if audit_chain.is_evidence(r["action"]))
    assert 1 < starts < 10
    assert explaining < 0.7 * sum(len(str(r)) for r in all_records(log))


def test_what_a_caller_wrote_moves_nothing_on_a_terminal_and_the_log_is_verified_and_replayed(
    log: Path, port: int
) -> None:
    name = "calc\u202etpircs\u2066\x85\x9b31m\x7f\u200b"
    with running_registry(
        [tool("calculator", backend=backend(port))], [binding("bot")], audit=audit(log)
    ) as r:
        ask(r, r.auth("team", "bot"), "calculator", name)

    found = all_records(log)
    assert any(record.get("tool") == name or record.get("name") == name for record in found)
    text = log.read_text()
    assert all(line.isascii() and line.isprintable() for line in text.split("\n"))
    assert set(told(replayed(found))) == {"equal"}
    assert verify(log).findings == ()
