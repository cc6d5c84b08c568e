"""The images that tests run, built here and kept as tar files: no registry, and no docker engine once they are built.

    python tests/support/realparts/images.py toolcrib weaviate pause --out FOLDER

prints one path a line, for `docker load -i` or `ctr -n k8s.io images import`. A tar is named after what it was made
from: the same content is never built twice. To build it takes root, docker and debootstrap (on Debian they are
installed when they are missing), and for the sandbox's program the Go of `build.py`.

| name | tag | what |
|---|---|---|
| toolcrib | toolcrib:test | the repository's Dockerfile on local/base:1 |
| weaviate | local/weaviate:1 | the built Weaviate server, started as the official image starts it |
| prometheus | local/prometheus:1 | Debian's prometheus and promtool |
| pause | local/pause:1 | a static program that waits and reaps, for pod sandboxes |
| base | local/base:1 | Debian with Python, from debootstrap |
"""

import argparse
import fcntl
import fnmatch
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

if __package__ in (None, ""):
    # Run as a file: Python put this folder first, where `weaviate` would be the wrong one.
    sys.path.remove(str(Path(__file__).resolve().parent))
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from realparts import baseimage, debian, docker, gotool, lookup
from realparts.parts import PARTS

ROOT = Path(__file__).resolve().parents[3]
BASE = "local/base:1"
_KEPT = 3  # tar files of one name: an older one may be in use elsewhere

# PID 1 of a sandbox: waits for a signal to end, and reaps what loses its parent.
_PAUSE = r"""package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for received := range signals {
		if received != syscall.SIGCHLD {
			return
		}
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
}
"""


@dataclass(frozen=True)
class Image:
    """One image: its tag, what its content depends on, and how an engine gets it."""

    name: str
    tag: str
    key: Callable[[], str]
    make: Callable[[docker.Engine, str], None]


def image(name: str) -> Path:
    """The tar file of an image, built first if its content has changed.

    Raises:
        KeyError: there is no such image.
        docker.DockerError: it was not built; also processes.NotReadyError, baseimage.BaseImageError,
            debian.MissingPackagesError, lookup.MissingPartError, gotool.GoMissingError.
    """
    return images([name])[0]


def images(names: Sequence[str]) -> list[Path]:
    """The tar files of these images, in their order; an engine is started only where one is missing."""
    folder = docker.cache_folder() / "images"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock, ExitStack() as stack:
        fcntl.flock(lock, fcntl.LOCK_EX)
        engine: docker.Engine | None = None
        found: list[Path] = []
        for name in names:
            one = IMAGES[name]
            path = folder / f"{name}-{one.key()}.tar"
            if not path.is_file():
                if engine is None:
                    debian.install(*debian.DOCKER)
                    engine = stack.enter_context(docker.engine())
                one.make(engine, one.tag)
                partial = path.with_suffix(".partial")
                engine.run("save", "-o", str(partial), one.tag, timeout=600)
                partial.replace(path)
            path.touch()
            _prune(folder, name)
            found.append(path)
    return found


def ensure_base(engine: docker.Engine) -> None:
    """Let the engine have local/base:1 as it is defined now."""
    tag = f"local/base:{baseimage.key()}"
    if not engine.has(tag):
        tree = docker.cache_folder() / "images" / f"rootfs-{baseimage.key()}.tar"
        if not tree.is_file():
            tree.parent.mkdir(parents=True, exist_ok=True)
            baseimage.build(tree)
        engine.run("import", str(tree), tag, timeout=300)
    engine.run("tag", tag, BASE)


def make_toolcrib(
    engine: docker.Engine, tag: str, *options: str, environment: Mapping[str, str] | None = None
) -> None:
    """Build the repository's Dockerfile on the base of tests, as `make image` does it.

    `options` are those of requirements/image.py; `environment` is added to that of the build's pip.
    """
    ensure_base(engine)
    command = [
        sys.executable,
        str(ROOT / "requirements" / "image.py"),
        "--tag",
        tag,
        "--base",
        BASE,
        *options,
    ]
    if engine.own:
        command += ["--network", "host"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=1800,
        env=engine.settings() | {"DOCKER": engine.client} | dict(environment or {}),
    )
    if done.returncode != 0:
        raise docker.DockerError(f"the image was not built: {done.stderr.strip()[-3000:]}")


def context_files() -> list[Path]:
    """What .dockerignore lets into a build, and the Dockerfile and the list themselves."""
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    allowed = [line[1:] for line in lines if line.startswith("!")]
    refused = [line.removeprefix("**/") for line in lines if line.startswith("**/")]

    def files() -> Iterator[Path]:
        for name in ("Dockerfile", ".dockerignore", *allowed):
            path = ROOT / name
            yield from (p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]

    def kept(path: Path) -> bool:
        parts = path.relative_to(ROOT).parts
        return not any(fnmatch.fnmatch(part, pattern) for part in parts for pattern in refused)

    return sorted(path for path in files() if kept(path))


def _toolcrib_key() -> str:
    digest = hashlib.sha256(baseimage.key().encode())
    for path in context_files():
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _make_base(engine: docker.Engine, tag: str) -> None:
    ensure_base(engine)


def _make_pause(engine: docker.Engine, tag: str) -> None:
    with tempfile.TemporaryDirectory(prefix="toolcrib-pause-") as folder:
        (Path(folder) / "pause.go").write_text(_PAUSE)
        # A static program that stands alone, whatever workspace the folder is in.
        settings = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}
        settings = gotool.provide(Path(folder), settings, sys.stderr)
        build = ("go", "build", "-trimpath", "-ldflags=-s -w", "pause.go")
        _call(*build, folder=Path(folder), environment=settings)
        (Path(folder) / "Dockerfile").write_text(
            'FROM scratch\nCOPY pause /pause\nUSER 65535:65535\nENTRYPOINT ["/pause"]\n'
        )
        engine.build(tag, Path(folder))


def _make_weaviate(engine: docker.Engine, tag: str) -> None:
    ensure_base(engine)
    _one_program(
        engine,
        tag,
        {"bin/weaviate": lookup.path_of("weaviate")},
        'ENTRYPOINT ["/bin/weaviate"]\nCMD ["--host", "0.0.0.0", "--port", "8080", "--scheme", "http"]\n',
    )


def _make_prometheus(engine: docker.Engine, tag: str) -> None:
    ensure_base(engine)
    with tempfile.TemporaryDirectory(prefix="toolcrib-prometheus-") as folder:
        _call("apt-get", "download", "prometheus", folder=Path(folder))
        (package,) = Path(folder).glob("*.deb")
        _call("dpkg", "-x", str(package), f"{folder}/tree")
        programs = {
            f"bin/{name}": Path(folder) / "tree/usr/bin" / name for name in ("prometheus", "promtool")
        }
        _one_program(engine, tag, programs, 'USER 65534:65534\nENTRYPOINT ["/bin/prometheus"]\n')


def _one_program(engine: docker.Engine, tag: str, programs: dict[str, Path], end: str) -> None:
    with tempfile.TemporaryDirectory(prefix="toolcrib-image-") as folder:
        copies = ""
        for target, source in programs.items():
            name = Path(target).name
            shutil.copy(source, Path(folder) / name)
            copies += f"COPY {name} /{target}\n"
        (Path(folder) / "Dockerfile").write_text(f"FROM {BASE}\n{copies}{end}")
        engine.build(tag, Path(folder))


def _call(*command: str, folder: Path | None = None, environment: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=600, env=environment)
    if done.returncode != 0:
        raise docker.DockerError(f"{' '.join(command[:3])} …: {done.stderr.strip()[-1500:]}")


def _prune(folder: Path, name: str) -> None:
    paths = sorted(folder.glob(f"{name}-*.tar"), key=lambda p: p.stat().st_mtime, reverse=True)
    for path in paths[_KEPT:]:
        path.unlink()


def _key_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


IMAGES: dict[str, Image] = {
    one.name: one
    for one in (
        Image("base", BASE, baseimage.key, _make_base),
        Image("toolcrib", "toolcrib:test", _toolcrib_key, make_toolcrib),
        Image(
            "weaviate",
            "local/weaviate:1",
            lambda: _key_of(baseimage.key() + PARTS["weaviate"].version),
            _make_weaviate,
        ),
        Image("prometheus", "local/prometheus:1", lambda: _key_of(baseimage.key()), _make_prometheus),
        Image("pause", "local/pause:1", lambda: _key_of(_PAUSE), _make_pause),
    )
}


def main(arguments: Sequence[str]) -> int:
    """Run the command line; print a path for each image, or what is wrong and 1."""
    parser = argparse.ArgumentParser(prog="images.py", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("names", nargs="+", metavar="IMAGE", choices=IMAGES, help=f"of {', '.join(IMAGES)}")
    parser.add_argument("--out", type=Path, help="link or copy them into this folder, as NAME.tar")
    options = parser.parse_args(arguments)
    try:
        paths = images(options.names)
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        print(f"images: {error}", file=sys.stderr)
        return 1
    for name, path in zip(options.names, paths, strict=True):
        print(_placed(path, options.out / f"{name}.tar") if options.out else path)
    return 0


def _placed(path: Path, target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    try:
        os.link(path, target)
    except OSError:
        shutil.copyfile(path, target)
    return target


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
