"""The process: what `toolcrib-runner` prints, how it ends, and what it serves meanwhile."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from realparts.processes import free_port, spawn, wait_until
from small_registry import SmallRegistry, SmallTool, serving
from toolcrib_runner import scripted

ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(("TOOLCRIB_", "OPENAI_"))}


@pytest.fixture
def registry() -> Iterator[SmallRegistry]:
    parameters = {"expression": {"type": "string", "description": "", "required": True}}
    with serving(
        SmallRegistry(SmallTool("calculator", lambda expression: 5, "Compute", parameters))
    ) as registry:
        yield registry


@pytest.fixture
def token_file(tmp_path: Path) -> str:
    file = tmp_path / "token"
    file.write_text("token-1")
    return str(file)


def start(*flags: str, **environ: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "toolcrib_runner.main", *flags]
    return spawn(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.PIPE,
        env={**ENVIRONMENT, **environ},
    )


def finish(process: subprocess.Popen[bytes], typed: bytes = b"") -> tuple[int, str, str]:
    out, err = process.communicate(typed, timeout=60)
    return process.returncode, out.decode(), err.decode()


def flags_of(registry: SmallRegistry, token_file: str) -> list[str]:
    return ["--name", "planner", "--registry-url", registry.url, "--token-file", token_file]


def test_a_task_ends_with_its_answer_and_a_summary_of_use(registry: SmallRegistry, token_file: str) -> None:
    task = 'call calculator {"expression": "2 + 3"}'
    with scripted.serving() as url:
        process = start(*flags_of(registry, token_file), "--model-url", url, "--task", "-", "-o", "json")
        code, out, err = finish(process, task.encode())
    assert code == 0, err
    result: dict[str, Any] = json.loads(out)
    assert result["outcome"] == "answered"
    assert result["answer"] == "Done, with 1 call.\ncalculator: 5"
    assert [(c["tool"], c["outcome"]) for c in result["calls"]] == [("calculator", "ok")]
    assert result["usage"] == {
        "agent": "planner",
        "total_tools_available": 1,
        "total_tool_calls": 1,
        "usage_by_tool": {"calculator": 1},
        "most_used_tool": "calculator",
    }
    assert "token-1" not in out + err


@pytest.mark.slow
def test_settings_may_come_from_the_environment(registry: SmallRegistry, token_file: str) -> None:
    with scripted.serving() as url:
        process = start(
            TOOLCRIB_AGENT="planner",
            TOOLCRIB_URL=registry.url,
            TOOLCRIB_TOKEN_FILE=token_file,
            TOOLCRIB_MODEL_URL=url,
            TOOLCRIB_TASK="call calculator {}",
        )
        code, out, err = finish(process)
    assert code == 0, err
    assert "1 available, used: none" in out
    assert "1, 1 of them failed or refused" in out


@pytest.mark.slow
def test_wrong_settings_are_all_named_and_end_with_2() -> None:
    code, out, err = finish(start("--name", "a b", "--max-turns", "x"))
    assert code == 2
    assert out == ""
    for name in ("--name", "--registry-url", "--max-turns"):
        assert name in err


@pytest.mark.slow
def test_a_model_endpoint_that_is_away_ends_with_4_and_says_so(
    registry: SmallRegistry, token_file: str
) -> None:
    url = f"http://127.0.0.1:{free_port()}/v1"
    flags = [*flags_of(registry, token_file), "--model-url", url, "--model-patience", "0.2", "--task", "x"]
    code, out, err = finish(start(*flags))
    assert code == 4
    assert f"the model endpoint failed: the model endpoint {url[7:-3]} cannot be reached" in out
    assert "planner" in out
    assert "Traceback" not in err


@pytest.mark.slow
def test_a_bound_that_is_reached_ends_with_3(registry: SmallRegistry, token_file: str) -> None:
    with scripted.serving() as url:
        flags = [*flags_of(registry, token_file), "--model-url", url, "--max-turns", "1"]
        code, out, _ = finish(start(*flags, "--task", 'call calculator {"expression": "1"}'))
    assert code == 3
    assert "the maximum number of turns is reached" in out


@pytest.mark.slow
def test_it_waits_for_a_registry_that_comes_later(token_file: str) -> None:
    port = free_port()
    flags = [
        "--name",
        "a",
        "--registry-url",
        f"http://127.0.0.1:{port}",
        "--token-file",
        token_file,
        "-o",
        "json",
    ]
    with scripted.serving() as url:
        process = start(*flags, "--model-url", url, "--task", "call calculator {}")
        try:
            assert process.stderr is not None
            assert b"starts without tools" in process.stderr.readline()
            with serving(SmallRegistry(SmallTool("calculator", lambda: 7)), port):
                code, out, err = finish(process)
        finally:
            process.kill()
    assert code == 0, err
    assert json.loads(out)["answer"] == "Done, with 1 call.\ncalculator: 7"


def test_without_a_registry_a_task_that_needs_one_ends_with_5_instead_of_an_answer(token_file: str) -> None:
    port = free_port()
    flags = ["--name", "a", "--registry-url", f"http://127.0.0.1:{port}", "--token-file", token_file]
    with scripted.serving() as url:
        flags += ["--model-url", url, "--task", "hello", "--wait-for-registry", "0.1", "--require-registry"]
        code, out, err = finish(start(*flags))
    assert code == 5, err
    assert "the registry does not respond" in out
    assert "Done" not in out


@pytest.mark.slow
def test_more_tools_than_a_model_takes_end_with_2_and_a_pod_stays(token_file: str) -> None:
    many = SmallRegistry(*(SmallTool(f"t{number}", lambda: 1) for number in range(129)))
    with serving(many) as registry, scripted.serving() as url:
        flags = [
            *flags_of(registry, token_file),
            "--model-url",
            url,
            "--task",
            "call t1 {}",
            "--mode",
            "static",
        ]
        code, out, err = finish(start(*flags))
        pod = start(*flags, "--keep-serving")
        try:
            assert pod.stderr is not None
            while b"following the registry until SIGTERM" not in pod.stderr.readline():
                assert pod.poll() is None
            pod.send_signal(signal.SIGTERM)
            ended, shown, _ = finish(pod)
        finally:
            pod.kill()
    assert (code, ended) == (2, 2), err
    assert "gained 129 (t0, t1, t10, " in err
    assert "and 109 more), lost 0, changed 0, unchanged 0; scopes 129 (t0:use, " in err
    assert "planner sees 129 tools" in out
    assert "planner sees 129 tools" in shown


@pytest.mark.slow
def test_counts_of_calls_outlive_a_restart_in_a_state_folder(
    registry: SmallRegistry, token_file: str, tmp_path: Path
) -> None:
    state = tmp_path / "deep" / "state"
    with scripted.serving() as url:
        flags = [*flags_of(registry, token_file), "--model-url", url, "--state", str(state), "-o", "json"]
        for _ in range(2):
            code, out, err = finish(start(*flags, "--task", 'call calculator {"expression": "1"}'))
            assert code == 0, err
    assert json.loads(out)["usage"]["usage_by_tool"] == {"calculator": 2}


@pytest.mark.slow
def test_another_process_with_the_state_folder_begins_with_the_tools_of_the_last_one(
    registry: SmallRegistry, token_file: str, tmp_path: Path
) -> None:
    registry.searchable = True
    task = ["--mode", "cached", "--task", "Compute 2 + 3 with the calculator", "-o", "json"]
    runs = []
    with scripted.serving() as url:
        for state in ("kept", "kept", "another"):
            flags = [*flags_of(registry, token_file), "--model-url", url, "--state", str(tmp_path / state)]
            code, out, err = finish(start(*flags, *task))
            assert code == 0, err
            runs.append(json.loads(out))
    assert [run["turns"] for run in runs] == [4, 2, 4]
    assert {(c["tool"], c["outcome"]) for run in runs for c in run["calls"]} == {("calculator", "ok")}


@pytest.mark.slow
def test_tools_are_paid_for_twice_only_where_it_is_asked_for(
    registry: SmallRegistry, token_file: str
) -> None:
    with scripted.serving() as url:
        flags = [*flags_of(registry, token_file), "--model-url", url, "--task", "hello", "-o", "json"]
        took = []
        for more in ([], ["--tool-context"]):
            code, out, err = finish(start(*flags, *more))
            assert code == 0, err
            took.append(json.loads(out)["tokens"]["prompt"])
    assert took[0] < took[1]


def test_a_state_folder_that_cannot_be_made_is_a_wrong_setting(
    registry: SmallRegistry, token_file: str
) -> None:
    code, _, err = finish(start(*flags_of(registry, token_file), "--keep-serving", "--state", token_file))
    assert code == 2
    assert "--state (TOOLCRIB_STATE): " in err


def test_it_serves_its_numbers_and_ends_at_once_on_sigterm(registry: SmallRegistry, token_file: str) -> None:
    with scripted.serving() as url:
        flags = [*flags_of(registry, token_file), "--model-url", url, "--metrics-port", "0", "--keep-serving"]
        process = start(*flags, "--task", 'call calculator {"expression": "1"}')
        try:
            assert process.stderr is not None
            serves = None
            while serves is None:
                line = process.stderr.readline()
                assert line, "ended too early"
                serves = re.search(rb"metrics at (\S+)/metrics", line)
            base = serves[1].decode()
            wanted = 'toolcrib_agent_tool_calls_total{agent="planner",outcome="ok",tool="calculator"} 1.0'
            wait_until(lambda: wanted in httpx.get(base + "/metrics", trust_env=False).text, 60)
            health = httpx.get(base + "/healthz", trust_env=False).json()
            assert (health["status"], health["tools"], health["registry"]) == ("ok", 1, "ok")
            while b"until SIGTERM" not in line:
                line = process.stderr.readline()
                assert line, "ended too early"
            process.send_signal(signal.SIGTERM)
            code, out, err = finish(process)
        finally:
            process.kill()
    assert code == 0, err
    assert "Done, with 1 call." in out


def test_it_is_ready_once_it_has_discovered(token_file: str) -> None:
    port = free_port()
    flags = ["--name", "a", "--registry-url", f"http://127.0.0.1:{port}", "--token-file", token_file]
    process = start(*flags, "--keep-serving", "--metrics-port", "0")
    try:
        assert process.stderr is not None
        serves = None
        while serves is None:
            line = process.stderr.readline()
            assert line, "ended too early"
            serves = re.search(rb"metrics at (\S+)/metrics", line)
        base = serves[1].decode()

        def told(path: str) -> int:
            return httpx.get(base + path, trust_env=False).status_code

        assert (told("/healthz"), told("/readyz")) == (200, 503)
        # an answer without tools is a discovery too
        with serving(SmallRegistry(), port):
            wait_until(lambda: told("/readyz") == 200, 60)
        # a registry that goes away later does not take the pod out
        assert told("/readyz") == 200
    finally:
        process.kill()
        finish(process)


@pytest.mark.slow
def test_sigterm_ends_a_task_that_waits_for_its_model(registry: SmallRegistry, token_file: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        process = start(*flags_of(registry, token_file), "--model-url", url, "--task", "x", "-o", "json")
        try:
            silent.settimeout(60)
            connection, _ = silent.accept()
            with connection:
                process.send_signal(signal.SIGTERM)
                code, out, err = finish(process)
        finally:
            process.kill()
    assert code == 143, err
    assert json.loads(out)["outcome"] == "stopped"


def test_help_names_every_flag_and_variable() -> None:
    code, out, _ = finish(start("--help"))
    assert code == 0
    assert "--token-file" in out
    assert "TOOLCRIB_TOKEN_FILE" in out
