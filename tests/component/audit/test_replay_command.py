"""`toolcrib audit replay`: what registries recorded is decided again, and by another policy, from their logs alone."""

import json
import re
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
import yaml

from decision_logs import files_of, key_file
from published import suspension
from registry_harness import RunningRegistry, backend, binding, running_registry, tool
from stub_server import Answer, answering
from toolcrib_cli.main import main

pytestmark = pytest.mark.guarantee
TOOLS = ("calculator", "vault")


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """The logs of two replicas: the bot called the calculator three times, the clerk asked for the vault twice."""
    with answering(lambda _: Answer(b"{}")) as port:
        tools = [tool(name, backend=backend(port)) for name in TOOLS]
        for replica in ("one", "two"):
            folder = tmp_path / replica
            folder.mkdir()
            audit = {"path": str(folder / "decisions.jsonl"), "key_file": key_file(folder)}
            with running_registry(tools, [binding("bot")], audit=audit, replica=replica) as r:
                for _ in range(3 if replica == "one" else 0):
                    _call(r, "bot", "calculator")
                _call(r, "clerk", "vault")
    return tmp_path


def _call(r: RunningRegistry, who: str, name: str) -> None:
    body = {"tool": f"team/{name}", "arguments": {}}
    r.http.get(r.url, headers=r.auth("team", who))
    r.http.post(f"{r.url}/v1/call", headers=r.auth("team", who), json=body)


def run(*arguments: str) -> Any:
    with pytest.raises(SystemExit) as ended:
        main(["audit", "replay", *arguments])
    return ended.value.code


def replayed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    assert run(*arguments, "-o", "json") == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def manifest(folder: Path, account: str, *scopes: str, name: str = "clerk", **spec: Any) -> str:
    path = folder / f"{name}.yaml"
    body = {
        "apiVersion": "toolcrib.dev/v1alpha1",
        "kind": "AgentScopeBinding",
        "metadata": {"name": name, "namespace": "team"},
        "spec": {
            "subjects": [{"kind": "ServiceAccount", "name": account}],
            "scopes": list(scopes),
            **spec,
        },
    }
    path.write_text(yaml.safe_dump(body))
    return str(path)


def test_the_logs_of_several_replicas_are_decided_again_and_come_out_the_same(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = replayed(capsys, str(logs))
    assert (found["different"], found["differences"]) == (0, [])
    assert found["equal"] == found["replayed"] == 3 * 2 + 2 * 2
    assert "changes" not in found
    only = replayed(capsys, str(logs), "--agent", "team/clerk", "--tool", "*vault")
    assert only["equal"] == 2
    assert replayed(capsys, str(logs), "--since", "1h")["equal"] == found["equal"]
    assert run(str(logs), "--since", "2100-01-01") == 1
    assert "no decision found" in capsys.readouterr().out


def test_a_decision_that_differs_is_shown_and_ends_with_1(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (file,) = files_of(logs / "one" / "decisions.jsonl")
    text = file.read_text()
    file.write_text(text.replace('"allowed":true,"reason":"granted"', '"allowed":true,"reason":"odd"', 1))
    assert '"reason":"odd"' in file.read_text()
    assert run(str(logs)) == 1
    shown = capsys.readouterr().out
    assert "call team/calculator: recorded True odd" in shown
    assert "different" in shown


def test_another_policy_is_compared_call_by_call(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gains = manifest(logs, "clerk", "vault:use")
    (change,) = replayed(capsys, str(logs), "--policy", gains)["changes"]
    assert (change["change"], change["agent"], change["tool"], change["times"]) == (
        "gained", "team/clerk", "team/vault", 2,
    )  # fmt: skip
    assert change["reason"] == "no_binding"
    assert f'"request_id":"{change["example"]}"' in (logs / "two" / "decisions.jsonl").read_text()
    pruned = replayed(capsys, str(logs), "--policy", gains, "--prune")["changes"]
    assert {(c["change"], c["agent"], c["tool"], c["times"]) for c in pruned} == {
        ("gained", "team/clerk", "team/vault", 2),
        ("lost", "team/bot", "team/calculator", 3),
    }
    narrowed = manifest(logs, "bot", "calculator:use", name="bot", tools={"deny": ["calculator"]})
    (lost,) = replayed(capsys, str(logs), "--policy", narrowed)["changes"]
    assert (lost["change"], lost["reason"]) == ("lost", "denied")
    assert lost["first"] <= lost["last"]


def test_a_suspended_agent_stays_suspended_where_bindings_are_pruned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    audit = {"path": str(tmp_path / "decisions.jsonl"), "key_file": key_file(tmp_path)}
    bindings = [binding("bot"), suspension("bot", "team")]
    with running_registry([tool("calculator")], bindings, audit=audit) as r:
        _call(r, "bot", "calculator")
    kept = manifest(tmp_path, "bot", "calculator:use", name="bot")
    found = replayed(capsys, audit["path"], "--policy", kept, "--prune")
    assert (found["different"], found["changes"]) == (0, [])
    assert found["equal"] > 0


def test_the_copy_of_a_stream_with_the_lines_of_several_replicas_in_turns_is_decided_again(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of_each = [
        files_of(logs / name / "decisions.jsonl")[0].read_text().splitlines() for name in ("one", "two")
    ]
    stream = logs / "stream.jsonl"
    stream.write_text("\n".join(line for pair in zip_longest(*of_each) for line in pair if line) + "\n")
    found = replayed(capsys, str(stream))
    assert (found["equal"], found["different"]) == (3 * 2 + 2 * 2, 0)


def test_records_of_another_versions_authorizer_are_counted_apart(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (file,) = files_of(logs / "two" / "decisions.jsonl")
    file.write_text(re.sub(r'"decider":\d+', '"decider":0', file.read_text()))
    found = replayed(capsys, str(logs))
    assert (found["equal"], found["notReplayed"]["other_decider"]) == (3 * 2 + 2, 2)


def test_a_binding_that_is_refused_or_missing_is_said(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = manifest(logs, "clerk", "not a scope")
    assert run(str(logs), "--policy", bad) == 2
    assert "toolcrib validate" in capsys.readouterr().err
    empty = logs / "empty"
    empty.mkdir()
    (empty / "x.yaml").write_text("kind: Namespace\napiVersion: v1\nmetadata: {name: team}\n")
    assert run(str(logs), "--policy", str(empty)) == 2
    assert "no binding is in these files" in capsys.readouterr().err
    assert run(str(logs), "--prune") == 2
    assert "--prune needs --policy" in capsys.readouterr().err


def test_what_a_gap_hides_is_not_decided_again(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file,) = files_of(logs / "one" / "decisions.jsonl")
    lines = file.read_text().splitlines()
    kept = [line for line in lines if '"policy.binding"' not in line]
    file.write_text("\n".join(kept) + "\n")
    found = replayed(capsys, str(file))
    assert (found["replayed"], found["different"]) == (0, 0)
    assert found["notReplayed"]["no_policy"] > 0
