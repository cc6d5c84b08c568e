"""The registry as a process: how it starts, what it says when it cannot, how it stops."""

import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from realparts import loaded
from realparts.required import require
from registry_harness import binding, mint, tool
from registry_process import COMMAND, configuration, process
from toolcrib.errors import SettingsInvalid
from toolcrib_registry.calls.assertions.keys import make_private
from toolcrib_registry.settings import from_env


@pytest.mark.usefixtures("fresh_programs")
def test_the_process_serves_both_ports_ends_streams_and_stops_on_sigterm(tmp_path: Path) -> None:
    token = mint("system:serviceaccount:team:bot")
    with process(configuration(tmp_path)) as running:
        child, lines, agents = running.child, running.lines, running.agents
        running.publish(tool("calculator"), bindings=(binding("bot"),))
        headers = {"Authorization": f"Bearer {token}"}
        found = httpx.get(f"http://127.0.0.1:{agents}/", headers=headers).json()
        assert [t["name"] for t in found["tools"]] == ["calculator"]
        httpx.get(f"http://127.0.0.1:{agents}/stats?q=find-me", headers=headers)

        with httpx.stream("GET", f"http://127.0.0.1:{agents}/v1/watch", headers=headers) as stream:
            pieces = stream.iter_lines()
            assert any(line == "event: snapshot" for line in pieces)
            started = time.monotonic()
            child.send_signal(signal.SIGTERM)
            assert any(line == "event: end" for line in pieces)
        assert child.wait(timeout=30) == 0
        assert time.monotonic() - started < 8

    access = [line for line in lines if line.get("route") == "/stats"]
    assert access
    assert access[0]["status"] == 200
    assert "find-me" not in json.dumps(lines)
    assert token not in json.dumps(lines)


def test_wrong_settings_are_named_all_at_once(tmp_path: Path) -> None:
    path = configuration(tmp_path, port=99_999, tsl={}, embedder={"kind": "magic"})

    done = loaded.run([*COMMAND, "--config", str(path)], timeout=60)

    assert done.returncode == 2
    for field in ("port", "tsl", "embedder.kind"):
        assert field in done.stderr


def test_issuers_whose_tokens_alone_decide_are_refused_outside_the_local_mode(tmp_path: Path) -> None:
    loose = {"issuer": "https://dev", "audience": ["x"], "scopes": "token"}
    path = configuration(tmp_path, issuers=[loose])

    done = loaded.run([*COMMAND, "--config", str(path)], timeout=60)

    assert done.returncode == 2
    assert "allow_dev_issuer" in done.stderr


@pytest.mark.parametrize(
    "place",
    [
        {"issuer": "http://idp.example.com"},
        {"issuer": "HTTP://idp.example.com"},
        {"issuer": "https://idp.example.com", "jwks_uri": "http://idp.example.com/jwks"},
        {"issuer": "https://idp.example.com", "jwks_uri": "http://127.0.0.1/jwks"},
    ],
)
def test_keys_over_plain_http_are_refused_outside_the_local_mode(
    tmp_path: Path, place: dict[str, str]
) -> None:
    path = configuration(tmp_path, issuers=[{"audience": ["x"], **place}])

    done = loaded.run([*COMMAND, "--config", str(path)], timeout=60)

    assert done.returncode == 2
    assert place["issuer"] in done.stderr
    assert "plain HTTP" in done.stderr


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"issuers": []}, ["issuers is empty"]),
        ({"admin_subjects": []}, ["admin_issuer and admin_subjects name no one"]),
        ({}, []),
    ],
    ids=["no issuer", "no operator", "both"],
)
def test_a_registry_that_nobody_can_publish_to_says_so_once_when_it_starts(
    changes: dict[str, Any], words: list[str], tmp_path: Path
) -> None:
    assertion = {"keys": str(make_private(tmp_path / "assertion"))}
    with process(configuration(tmp_path, **changes, assertion=assertion)) as running:
        pass

    said = [x["message"].partition(":")[0] for x in running.lines if x["level"] == "warning"]
    assert said == words


def test_a_registry_without_keys_for_assertions_signs_with_its_own_and_says_so(tmp_path: Path) -> None:
    with process(configuration(tmp_path)) as running:
        found = httpx.get(f"http://127.0.0.1:{running.agents}/.well-known/jwks.json", trust_env=False).json()

    assert len(found["keys"]) == 1
    assert [x["message"].partition(":")[0] for x in running.lines if x["level"] == "warning"] == [
        "assertion.keys is not set"
    ]


def test_a_registry_does_not_start_with_keys_that_it_cannot_use(tmp_path: Path) -> None:
    path = configuration(tmp_path, assertion={"keys": str(tmp_path / "nowhere")})
    done = loaded.run([*COMMAND, "--config", str(path)], timeout=60)

    assert done.returncode != 0
    assert "signing.pem does not exist; create one with: openssl" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_variables_override_the_file_and_those_of_others_are_left_alone(tmp_path: Path) -> None:
    path = configuration(tmp_path)

    settings = from_env(
        {
            "TOOLCRIB_CONFIG": str(path),
            "TOOLCRIB_PORT": "9000",
            "TOOLCRIB_STORE__KIND": "weaviate",
            "TOOLCRIB_EGRESS__ALLOW": "[api.example.com]",
            "TOOLCRIB_URL": "http://for-the-client",
        }
    )

    assert (settings.port, settings.store.kind) == (9000, "weaviate")
    assert settings.egress.allow == ("api.example.com",)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"TOOLCRIB_TLS__CERT_FILE": "/x"}, "tls"),
        ({"TOOLCRIB_STORE__KND": "x"}, "store.knd"),
        ({"TOOLCRIB_PORT": "[1"}, "TOOLCRIB_PORT"),
        ({"TOOLCRIB_ISSUERS": "[{issuer: a, audience: [toolcrib-admin]}]"}, "admin_audience"),
        ({"TOOLCRIB_ISSUERS": "[{issuer: a, audience: [x]}, {issuer: a, audience: [y]}]"}, "the same iss"),
    ],
)
def test_a_wrong_variable_is_named(change: dict[str, str], field: str) -> None:
    with pytest.raises(SettingsInvalid, match=field.replace(".", r"\.")):
        from_env(change)


@pytest.mark.parametrize("as_first_process", [False, pytest.param(True, marks=pytest.mark.real)])
def test_a_stop_during_the_start_is_heard(tmp_path: Path, as_first_process: bool) -> None:
    within = ["unshare", "--pid", "--fork", "--kill-child"] if as_first_process else []
    if within:
        able = subprocess.run([*within, "true"], capture_output=True, check=False).returncode == 0
        require(able, "no process namespace of one's own may be made here: run as root")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        # takes the connection and never says a word: the keys are waited for
        silent.settimeout(30)
        issuer = {"issuer": "https://away", "audience": ["x"], "scopes": "bindings"}
        keys = f"http://127.0.0.1:{silent.getsockname()[1]}/jwks"
        path = configuration(tmp_path, issuers=[{**issuer, "jwks_uri": keys}], allow_dev_issuer=True)
        child = subprocess.Popen(
            [*within, *COMMAND, "--config", str(path)], stderr=subprocess.PIPE, text=True
        )
        try:
            asking, _ = silent.accept()
            with asking:
                registry = int(_children(child.pid)[0]) if as_first_process else child.pid
                os.kill(registry, signal.SIGTERM)
                _, said = child.communicate(timeout=9)  # the keys are given up after ten seconds
        finally:
            child.kill()
            child.communicate()
    assert child.returncode == 0, said
    assert "stopped during the start" in said
    assert "agents on port" not in said


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
