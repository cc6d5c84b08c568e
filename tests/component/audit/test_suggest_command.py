"""`toolcrib access suggest` on what registries recorded: what it says, and which logs it takes nothing from."""

import json
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import published
from decision_logs import files_of, key_file
from realparts.processes import wait_until
from registry_harness import RunningRegistry, backend, binding, running_registry, tool
from stub_server import Answer, answering
from toolcrib.audit.chain import timestamp
from toolcrib_cli import suggesting
from toolcrib_cli.main import main
from toolcrib_cli.suggesting import Reading

pytestmark = pytest.mark.guarantee
TOOLS = ("calculator", "vault")
CREW = binding(
    "bot", ["calculator:use", "vault:use"],
    name="crew", subjects=tuple(published.account("team", name) for name in ("bot", "clerk", "guest")),
)  # fmt: skip


@dataclass(frozen=True)
class Logs:
    """Those of two replicas: the bot calls the calculator at one, and the clerk the vault, which fails, at the other."""

    folder: Path
    since: str

    def of(self, replica: str) -> Path:
        (file,) = files_of(self.folder / replica / "decisions.jsonl")
        return file


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Logs:
    folder = tmp_path_factory.mktemp("logs")
    with answering(
        lambda asked: Answer(b"{}") if asked.path == "/calculator" else Answer(b"", status=503)
    ) as port:
        tools = [tool(name, backend=backend(port, f"/{name}")) for name in TOOLS]
        begun = ""
        for replica, who, name in (("one", "bot", "calculator"), ("two", "clerk", "vault")):
            (folder / replica).mkdir()
            audit = {
                "path": str(folder / replica / "decisions.jsonl"),
                "key_file": key_file(folder / replica),
            }
            with running_registry(tools, [CREW], audit=audit, replica=replica) as r:
                begun = begun or after_the_policy(folder / replica / "decisions.jsonl")
                for _ in range(2):
                    call(r, who, name)
                call(r, "stranger", "vault")
                call(r, f"stranger-{replica}", "calculator")
                r.http.get(r.url, headers=r.auth("team", "guest"))
    return Logs(folder, begun)


def after_the_policy(log: Path) -> str:
    """A millisecond after it was written down."""
    wait_until(lambda: '"policy.binding"' in log.read_text())
    written = datetime.fromisoformat(json.loads(log.read_text().splitlines()[-1])["ts"])
    return timestamp((written + timedelta(milliseconds=1)).timestamp())


@pytest.fixture
def logs(recorded: Logs, tmp_path: Path) -> Logs:
    """A copy to spoil."""
    for file in recorded.folder.rglob("*"):
        if file.is_file():
            copy = tmp_path / file.relative_to(recorded.folder)
            copy.parent.mkdir(exist_ok=True)
            copy.write_bytes(file.read_bytes())
            copy.chmod(0o600)
    return Logs(tmp_path, recorded.since)


def call(r: RunningRegistry, who: str, name: str) -> None:
    body = {"tool": f"team/{name}", "arguments": {}}
    r.http.post(f"{r.url}/v1/call", headers=r.auth("team", who), json=body)


def run(logs: Logs, *arguments: str) -> Any:
    with pytest.raises(SystemExit) as ended:
        main(["access", "suggest", "--log", str(logs.folder), "--since", logs.since, *arguments])
    return ended.value.code


def test_what_no_replicas_calls_used_goes_and_failed_calls_are_uses(
    logs: Logs, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not run(logs, "-o", "json")
    document = json.loads(capsys.readouterr().out)

    (found,) = document["suggestions"]
    assert (found["binding"], found["delete"]) == ("AgentScopeBinding team/crew", False)
    assert [e["entry"] for e in found["remove"]] == ["ServiceAccount/team/guest"]
    assert {e["entry"]: e["calls"] for e in found["keep"]} == {
        "ServiceAccount/team/bot": 2, "ServiceAccount/team/clerk": 2, "calculator:use": 2, "vault:use": 2,
    }  # fmt: skip
    assert found["patch"][-1] == {"op": "remove", "path": "/spec/subjects/2"}
    assert [(e["tool"], e["reason"], e["agents"], e["times"]) for e in document["refused"]] == [
        ("team/calculator", "no_binding", 2, 2), ("team/vault", "no_binding", 1, 2),
    ], "what more agents asked for comes first"  # fmt: skip


def test_people_read_it_as_a_table_and_kubectl_as_a_patch(
    logs: Logs, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not run(logs, "team/crew")
    shown = capsys.readouterr()
    assert (
        "AgentScopeBinding team/crew\t- remove\tsubjects\tServiceAccount/team/guest\t0\t\tnever used"
        in shown.out
    )
    assert "team/vault\tno_binding\t1\t2" in shown.out
    assert "4 calls since" in shown.err
    assert not run(logs, "team/crew", "-o", "patch")
    assert "# kubectl patch asb crew -n team --type json --patch-file FILE" in capsys.readouterr().out


def test_nothing_is_suggested_from_a_log_that_lacks_something(
    logs: Logs, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = logs.of("two").read_bytes()
    lines = whole.splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if b'"action":"call"' in line)
    spoiled = {
        "missing": b"".join([*lines[:at], *lines[at + 1 :]]),
        "altered": whole.replace(b'"tool":"team/vault"', b'"tool":"team/other"', 1),
        "not a record": whole + b"nonsense\n",
        "1 decisions come out otherwise": whole.replace(b'"reason":"granted"', b'"reason":"odd"', 1),
        "of team/clerk and team/vault it has sums of calls, and no single one": b"".join(map(summed, lines)),
    }
    for says, content in spoiled.items():
        logs.of("two").write_bytes(content)
        assert run(logs) == 2
        assert says in capsys.readouterr().err


def summed(line: bytes) -> bytes:
    """A call that was allowed, as a sum."""
    record = json.loads(line)
    if record["action"] == "call" and record["allowed"]:
        record["repeated"] = {"count": 1, "since": record["ts"], "until": record["ts"]}
    return json.dumps(record).encode() + b"\n"


def test_a_replica_of_another_key_and_a_log_that_begins_too_late_are_named(
    logs: Logs, capsys: pytest.CaptureFixture[str]
) -> None:
    (logs.folder / "two" / "audit.key").unlink()
    (logs.folder / "one" / "audit.key").write_text("6" * 64)
    assert run(logs) == 2
    assert "the wrong key, or a forgery" in capsys.readouterr().err


def test_a_period_before_the_log_begins_is_refused(logs: Logs, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(Logs(logs.folder, "30d")) == 2
    told = capsys.readouterr().err
    assert "it begins at" in told
    assert "--since chooses a shorter period" in told


def test_a_suggestion_that_the_replay_contradicts_is_withheld(
    logs: Logs, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = suggesting.suggest
    monkeypatch.setattr(
        suggesting, "suggest", lambda *given: tuple(replace(s, narrowed=None) for s in made(*given))
    )
    assert run(logs, "-o", "patch") == 1
    shown = capsys.readouterr()
    assert "it is withheld: AgentScopeBinding team/crew" in shown.err
    assert shown.out == ""


def test_a_binding_that_is_not_there_is_refused(logs: Logs, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(logs, "team/none") == 2
    assert "no binding is called team/none" in capsys.readouterr().err


def test_a_clock_that_is_set_back_within_the_period_hides_no_call(logs: Logs) -> None:
    """Chained without a key, as a test can write it."""
    reading, calls = Reading(logs.since, [], []), 0
    for number, raw in enumerate(logs.of("one").read_bytes().splitlines(), 1):
        record = json.loads(raw)
        calls += record["action"] == "call" and record["allowed"]
        earlier = {"ts": "2020-01-01T00:00:00.000Z"} if calls == 2 else {}
        reading.line("one", number, json.dumps(record | earlier).encode())
    assert reading.uses.calls == 2


def test_records_that_this_version_cannot_read_are_no_ground(logs: Logs) -> None:
    """Chained without a key, as a test can write it."""
    reading = Reading(logs.since, [], [])
    for number, raw in enumerate(logs.of("one").read_bytes().splitlines(), 1):
        record = json.loads(raw)
        later = {"ms": "fast"} if record["action"] == "call" and record["allowed"] else {}
        reading.line("one", number, json.dumps(record | later).encode())
    assert reading.missing == {"unreadable": 2}
    assert reading.uses.needs == []


def test_calls_that_another_version_decided_are_no_ground(
    logs: Logs, capsys: pytest.CaptureFixture[str]
) -> None:
    """Chained without a key, as a test can write it."""
    reading = Reading(logs.since, [], [])
    for number, raw in enumerate(logs.of("one").read_bytes().splitlines(), 1):
        record = json.loads(raw)
        reading.line(
            "one", number, json.dumps(record | ({"decider": 0} if "decider" in record else {})).encode()
        )
    assert reading.missing == {"other_decider": 2}
    assert reading.uses.needs == []
