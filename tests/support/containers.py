"""Containers of the image in a real docker engine, started as locked down as a cluster would."""

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from realparts import docker, processes

TAG = "toolcrib:test"
LOCKED = ("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--pids-limit", "200")
DATA = "/data"
"""Where a container with `writable` may write, as the image's user; nowhere else."""


@dataclass(frozen=True)
class Container:
    """A running container."""

    engine: docker.Engine
    name: str

    def logs(self) -> str:
        """Both output streams so far."""
        done = self.engine.run("logs", self.name, check=False)
        return done.stdout + done.stderr

    def execute(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a program inside."""
        return self.engine.run("exec", self.name, *command, check=False)

    def state(self) -> Any:
        """What the engine knows: `Running`, `ExitCode`, `Health.Status`."""
        return json.loads(self.engine.run("inspect", "--format", "{{json .State}}", self.name).stdout)

    def wait_for(self, text: str, timeout: float = 60) -> None:
        """Until the logs hold this text. Raises TimeoutError with the logs."""
        try:
            processes.wait_until(lambda: text in self.logs() or not self.state()["Running"], timeout, 0.2)
        except TimeoutError:
            raise TimeoutError(f"{text!r} is not in the logs:\n{self.logs()}") from None
        if text not in self.logs():
            raise RuntimeError(f"the container ended:\n{self.logs()}")


def once(
    engine: docker.Engine, *command: str, entrypoint: str | None = None, network: str = "none"
) -> subprocess.CompletedProcess[str]:
    """Run a command in a locked-down container of its own and wait for its end; `entrypoint` replaces `toolcrib`."""
    words = ["run", "--rm", "--network", network, *LOCKED]
    words += ["--entrypoint", entrypoint] if entrypoint else []
    return engine.run(*words, TAG, *command, check=False)


@contextmanager
def running(
    engine: docker.Engine,
    name: str,
    *command: str,
    network: str = "none",
    writable: bool = False,
    mounts: Mapping[Path, str] | None = None,
    environment: Mapping[str, str] | None = None,
    options: tuple[str, ...] = (),
) -> Iterator[Container]:
    """A locked-down container for the time of the block; `mounts` are read-only, by the path on this machine."""
    words = ["run", "--detach", "--name", name, "--network", network, *LOCKED, *options]
    words += ["--tmpfs", f"{DATA}:uid=65532,gid=65532,mode=0700"] if writable else []
    words += [w for source, target in (mounts or {}).items() for w in ("-v", f"{source}:{target}:ro")]
    words += [w for pair in (environment or {}).items() for w in ("-e", "=".join(pair))]
    engine.run("rm", "-f", name, check=False)
    engine.run(*words, TAG, *command)
    try:
        yield Container(engine, name)
    finally:
        engine.run("rm", "-f", name, check=False)
