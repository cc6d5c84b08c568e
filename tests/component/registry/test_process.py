"""The registry as a process: how it starts, what it says when it cannot, how it stops."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

import registry_harness
from registry_harness import OPERATOR, binding, mint, tool
from toolcrib.wire.publish import Publish, Revision
from toolcrib_registry.settings import SettingsError, from_env

COMMAND = [sys.executable, "-m", "toolcrib_registry.main"]


def configuration(folder: Path, **changes: object) -> Path:
    key = registry_harness.keyset()[registry_harness.ISSUER]["k1"]
    assert isinstance(key, ec.EllipticCurvePublicKey)
    jwk = {**ECAlgorithm.to_jwk(key, as_dict=True), "kid": "k1", "alg": "ES256", "use": "sig"}
    (folder / "jwks.json").write_text(json.dumps({"keys": [jwk]}))
    issuer = {
        "issuer": registry_harness.ISSUER,
        "audience": ["toolcrib"],
        "jwks_file": str(folder / "jwks.json"),
        "scopes": "bindings",
        "cluster": True,
    }
    settings = {
        "port": 0,
        "admin_port": 0,
        "issuers": [issuer],
        "admin_subjects": [OPERATOR],
        "store": {"kind": "embedded", "path": str(folder / "index")},
        "embedder": {"kind": "none"},
        **changes,
    }
    path = folder / "registry.yaml"
    path.write_text(json.dumps(settings))
    return path


@contextmanager
def process(config: Path) -> Iterator[tuple[subprocess.Popen[str], list[dict[str, object]], list[int]]]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TOOLCRIB_")}
    child = subprocess.Popen(
        [*COMMAND, "--config", str(config)], stderr=subprocess.PIPE, text=True, env=environment
    )
    lines: list[dict[str, object]] = []
    ports: list[int] = []
    listening = threading.Event()

    def read() -> None:
        assert child.stderr is not None
        for text in child.stderr:
            line = json.loads(text)
            lines.append(line)
            words = str(line.get("message", "")).replace(",", "").split()
            if words[:2] == ["agents", "on"]:
                ports.extend(int(w) for w in words if w.isdigit())
                listening.set()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        assert listening.wait(timeout=30), lines
        yield child, lines, ports
    finally:
        if child.poll() is None:
            child.terminate()
            try:
                child.wait(timeout=20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        thread.join(timeout=5)
        assert child.stderr is not None
        child.stderr.close()


def test_the_process_serves_both_ports_ends_streams_and_stops_on_sigterm(tmp_path: Path) -> None:
    token = mint("system:serviceaccount:team:bot")
    with process(configuration(tmp_path)) as (child, lines, (agents, admin)):
        full = Publish(to=Revision(epoch=1, seq=1), tools=(tool("calculator"),), bindings=(binding("bot"),))
        published = httpx.post(
            f"http://127.0.0.1:{admin}/v1/admin/publish",
            headers={"Authorization": f"Bearer {mint(OPERATOR, audience='toolcrib-admin')}"},
            content=full.model_dump_json(),
        )
        assert published.status_code == 200, published.text
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
        assert child.wait(timeout=15) == 0
        assert time.monotonic() - started < 8

    access = [line for line in lines if line.get("path") == "/stats"]
    assert access
    assert access[0]["status"] == 200
    assert "find-me" not in json.dumps(lines)
    assert token not in json.dumps(lines)


def test_wrong_settings_are_named_all_at_once(tmp_path: Path) -> None:
    path = configuration(tmp_path, port=99_999, tsl={}, embedder={"kind": "magic"})

    done = subprocess.run([*COMMAND, "--config", str(path)], capture_output=True, text=True, timeout=60)

    assert done.returncode == 2
    for field in ("port", "tsl", "embedder.kind"):
        assert field in done.stderr


def test_issuers_whose_tokens_alone_decide_are_refused_outside_the_local_mode(tmp_path: Path) -> None:
    loose = {"issuer": "https://dev", "audience": ["x"], "scopes": "token"}
    path = configuration(tmp_path, issuers=[loose])

    done = subprocess.run([*COMMAND, "--config", str(path)], capture_output=True, text=True, timeout=60)

    assert done.returncode == 2
    assert "allow_dev_issuer" in done.stderr


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
        ({"TOOLCRIB_ISSUERS": "[{issuer: a, audience: [x]}, {issuer: a, audience: [y]}]"}, "one iss"),
    ],
)
def test_a_wrong_variable_is_named(change: dict[str, str], field: str) -> None:
    with pytest.raises(SettingsError, match=field.replace(".", r"\.")):
        from_env(change)
