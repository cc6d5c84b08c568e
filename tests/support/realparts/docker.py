"""A real docker engine: the one that runs here, else a dockerd of our own that leaves nothing behind.

Our own has a mount and a process namespace to itself: when it ends, by whatever way, its mounts and containers are
gone. It makes no bridge and touches no firewall rule: its containers and builds use the host's network, on loopback
ports that the caller chooses. Its data stays in the user's cache, so layers are built once. Needs root.
"""

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from realparts import lookup, processes

CGROUP = "toolcrib-docker"
_START = 60.0  # seconds
_KEPT_LAYERS = "4GB"
# What dockerd makes outside the folders it is given, whatever it is told; innermost first.
_FOLDERS = tuple(
    map(Path, ("/run/docker/plugins", "/run/docker", "/run/containerd/s", "/run/containerd", "/etc/docker"))
)


_ours: list["Engine"] = []
"""Started by this process, which waits for its own lock for ever if it wants another."""


class DockerError(RuntimeError):
    """A docker command failed, or there is no engine; the message ends with what it said."""


@dataclass(frozen=True)
class Engine:
    """An engine to talk to. `own`: it was started here and has no network but the host's."""

    client: str
    host: str = ""
    own: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)

    def run(
        self, *args: str, check: bool = True, timeout: float = 120, input: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run the docker client, text in and out.

        Raises:
            DockerError: it failed, and `check` is set.
        """
        done = subprocess.run(
            [self.client, *args],
            input=input,
            capture_output=True,
            text=True,
            timeout=timeout,
            env=self.settings(),
        )
        if check and done.returncode != 0:
            raise DockerError(
                f"docker {' '.join(args[:3])} …: {(done.stderr or done.stdout).strip()[-3000:]}"
            )
        return done

    def build(self, tag: str, context: Path) -> None:
        """Build an image with BuildKit. `context` holds the Dockerfile. Raises DockerError."""
        network = ("--network", "host") if self.own else ()
        self.run("build", "--progress", "plain", "-t", tag, *network, str(context), timeout=1800)

    def has(self, image: str) -> bool:
        """Whether the engine has an image of this name."""
        return self.run("image", "inspect", image, check=False).returncode == 0

    def settings(self) -> dict[str, str]:
        """The environment in which a docker client talks to this engine."""
        settings = {"DOCKER_BUILDKIT": "1", **self.environment}
        if self.host:
            settings["DOCKER_HOST"] = self.host
        return {**os.environ, **settings}


@contextlib.contextmanager
def engine() -> Iterator[Engine]:
    """An engine for the time of the block: the running one, else our own; the same within such a block.

    Raises:
        DockerError: there is none and none can be started.
    """
    found = _ours[-1] if _ours else running()
    if found is not None:
        yield found
        return
    with own() as started:
        _ours.append(started)
        try:
            yield started
        finally:
            _ours.remove(started)


def running() -> Engine | None:
    """The engine of DOCKER_HOST or of the default socket, if one answers and it can build."""
    client = client_path()
    if client is None:
        return None
    found = Engine(client)
    return found if found.run("info", "--format", "{{.ID}}", check=False).returncode == 0 else None


def client_path() -> str | None:
    """The first docker client on PATH that builds with BuildKit: from 23 on that takes the buildx plugin."""
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        client = shutil.which("docker", path=folder) if folder else None
        if client is None:
            continue
        version = subprocess.run([client, "--version"], capture_output=True, text=True).stdout
        major = version.removeprefix("Docker version ").partition(".")[0]
        old = major.isdigit() and int(major) < 23
        if old or subprocess.run([client, "buildx", "version"], capture_output=True).returncode == 0:
            return client
    return None


@contextlib.contextmanager
def own() -> Iterator[Engine]:
    """A dockerd of our own, one at a time for a cache; it ends with the block.

    Raises:
        DockerError: no root, or docker is not installed.
        processes.NotReadyError: it did not start.
    """
    client, daemon = client_path(), shutil.which("dockerd")
    if os.geteuid() != 0:
        raise DockerError("no docker engine answers, and starting one takes root")
    if client is None or daemon is None:
        raise DockerError("no docker here: on Debian, apt-get install docker.io")
    data = cache_folder() / "docker"
    data.mkdir(parents=True, exist_ok=True)
    with (cache_folder() / "docker.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = Path(tempfile.mkdtemp(prefix="toolcrib-docker-"))
        absent = [path for path in _FOLDERS if not path.exists()]
        (folder / "daemon.json").write_text("{}")
        child = processes.Child("dockerd", _arguments(daemon, data, folder), log=folder / "dockerd.log")
        # the client's own settings (contexts, credential helpers) are for another engine
        started = Engine(
            client, f"unix://{folder}/docker.sock", True, {"DOCKER_CONFIG": str(folder / "client")}
        )
        try:
            with child:
                child.wait_ready(lambda: _answers(started), timeout=_START, interval=0.1)
                yield started
                tidy(started)
        finally:
            child.stop(grace=20)
            remove_cgroups()
            _remove_new(absent)
            shutil.rmtree(folder, ignore_errors=True)


def tidy(engine: Engine) -> None:
    """Remove every container of our own engine, images without a name, and layers beyond what the next build needs."""
    ids = engine.run("ps", "-aq").stdout.split()
    if ids:
        engine.run("rm", "-f", "-v", *ids)
    engine.run("image", "prune", "--force", timeout=300)
    engine.run("builder", "prune", "--force", "--keep-storage", _KEPT_LAYERS, timeout=300, check=False)


def remove_cgroups() -> None:
    """Remove the empty control groups that containers of our own engine leave."""
    for root in [Path("/sys/fs/cgroup"), *Path("/sys/fs/cgroup").glob("*/")]:
        top = root / CGROUP
        if top.is_dir():
            folders = sorted(
                (p for p in top.rglob("*") if p.is_dir()), key=lambda p: len(p.parts), reverse=True
            )
            for path in [*folders, top]:
                with contextlib.suppress(OSError):
                    path.rmdir()


def cache_folder() -> Path:
    """Where data of our own engine and saved images stay between runs."""
    return lookup.cache_folder(os.environ).parent


def _remove_new(folders: Sequence[Path]) -> None:
    """Remove folders that were not there before, unless somebody else uses them by now."""
    if Path("/etc/docker") in folders:
        Path("/etc/docker/key.json").unlink(missing_ok=True)
    for path in folders:
        with contextlib.suppress(OSError):
            path.rmdir()


def _answers(engine: Engine) -> bool:
    done = engine.run("info", "--format", "{{json .ServerErrors}}", check=False)
    return done.returncode == 0 and json.loads(done.stdout or "null") in (None, [])


def _arguments(daemon: str, data: Path, folder: Path) -> list[str | Path]:
    namespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    return [
        *namespaces,
        daemon,
        f"--config-file={folder / 'daemon.json'}",
        f"--data-root={data}",
        f"--exec-root={folder / 'exec'}",
        f"--pidfile={folder / 'docker.pid'}",
        f"--host=unix://{folder}/docker.sock",
        f"--cgroup-parent=/{CGROUP}",
        "--bridge=none",
        "--iptables=false",
        "--ip6tables=false",
        "--ip-forward=false",
        "--ip-masq=false",
        "--group=root",
    ]
