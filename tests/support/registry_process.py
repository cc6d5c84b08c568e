"""The registry as a process of its own: a configuration, its log lines, its ports."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

import registry_harness
from realparts import loaded
from registry_harness import OPERATOR, mint
from toolcrib.wire.publish import Publish, PublishedBinding, PublishedTool, Revision

COMMAND = [sys.executable, "-m", "toolcrib_registry.main"]


def configuration(folder: Path, **changes: Any) -> Path:
    """A configuration file in `folder` for a registry that trusts the harness's tokens and has the embedded index."""
    key = registry_harness.keyset()[registry_harness.ISSUER]["k1"]
    assert isinstance(key, ec.EllipticCurvePublicKey)
    jwk = {**ECAlgorithm.to_jwk(key, as_dict=True), "kid": "k1", "alg": "ES256", "use": "sig"}
    folder.mkdir(exist_ok=True)
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
        "metrics": {"port": 0},
        "issuers": [issuer],
        "admin_subjects": [OPERATOR],
        "store": {"kind": "embedded", "path": str(folder / "index")},
        "embedder": {"kind": "none"},
        **changes,
    }
    path = folder / "registry.yaml"
    path.write_text(json.dumps(settings))
    return path


@dataclass(slots=True)
class RegistryProcess:
    """A running `toolcrib-registry`. `lines` grows: one parsed log line each."""

    child: subprocess.Popen[bytes] | loaded.Fork
    lines: list[dict[str, Any]] = field(default_factory=list)
    agents: int = 0
    metrics: int = 0
    admin: int = 0
    scheme: str = "http"

    @property
    def url(self) -> str:
        """The agents' listener."""
        return f"{self.scheme}://127.0.0.1:{self.agents}"

    @property
    def admin_url(self) -> str:
        """The admin listener."""
        return f"{self.scheme}://127.0.0.1:{self.admin}"

    @property
    def metrics_url(self) -> str:
        """The metrics listener; it speaks plain HTTP unless the configuration says otherwise."""
        return f"http://127.0.0.1:{self.metrics}"

    def publish(self, *tools: PublishedTool, bindings: tuple[PublishedBinding, ...] = ()) -> None:
        """Publish one full snapshot, as an operator does."""
        full = Publish(to=Revision(epoch=1, seq=1), tools=tools, bindings=bindings)
        answer = httpx.post(
            f"{self.admin_url}/v1/admin/publish",
            headers={"Authorization": f"Bearer {mint(OPERATOR, audience='toolcrib-admin')}"},
            content=full.model_dump_json(),
            verify=False,
            timeout=30,
        )
        assert answer.status_code == 200, answer.text


@contextmanager
def process(
    config: Path,
    scheme: str = "http",
    *,
    within: Sequence[str] = (),
    environment: dict[str, str] | None = None,
) -> Iterator[RegistryProcess]:
    """A registry with this configuration, once it listens; stopped at the end if it still runs.

    `within` is a command that becomes the registry's, which is given to it as arguments; `environment` are variables
    besides our own.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TOOLCRIB_")}
    environ = kept | (environment or {})
    argv = [*within, *COMMAND, "--config", str(config)]
    reading, writing = os.pipe()
    try:
        if loaded.takes(argv):
            child: subprocess.Popen[bytes] | loaded.Fork = loaded.spawn(argv, stderr=writing, env=environ)
        else:
            child = subprocess.Popen(argv, stderr=writing, env=environ)
    finally:
        os.close(writing)
    running = RegistryProcess(child, scheme=scheme)
    listening = threading.Event()

    def read() -> None:
        with open(reading, encoding="utf-8") as said:
            for text in said:
                line = json.loads(text)
                running.lines.append(line)
                words = str(line.get("message", "")).replace(",", "").split()
                if words[:2] == ["agents", "on"]:
                    running.agents, running.metrics, running.admin = (int(w) for w in words if w.isdigit())
                    listening.set()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        assert listening.wait(timeout=60), running.lines
        yield running
    finally:
        if child.poll() is None:
            child.terminate()
            try:
                child.wait(timeout=30)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        thread.join(timeout=30)
