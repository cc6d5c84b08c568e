"""Make the virtual environment that every `make` target runs in, from the locked requirements.

    python3 requirements/environment.py [FOLDER]     default: .venv

Takes the newest Python of 3.11 to 3.13 found on PATH (or the one named by PYTHON), checks every download against the
hashes in `requirements/`, and does nothing where nothing has changed. Of several of one minor version it takes the first,
unless another runs much faster. uv installs if it reaches an index with
pip's own settings, else pip does. Needs nothing but Python.
"""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BOOTSTRAP, LOCK = ROOT / "requirements" / "bootstrap.txt", ROOT / "requirements" / "dev.txt"
SOURCES = (ROOT / "client", ROOT)
"""Where our own distributions are made."""
CANDIDATES = ("python3.13", "python3.12", "python3.11", "python3", "python")
SUPPORTED = ((3, 11), (3, 12), (3, 13))
PROBE = "import ensurepip, sys, venv; print(*sys.version_info[:2])"
SPEED = """\
import time
class Thing:
    def __init__(self, value):
        self.value = value
    def next(self):
        return self.value + 1
def work():
    began, total = time.perf_counter(), 0
    for number in range(20_000):
        total += Thing(number).next()
    return time.perf_counter() - began
print(int(min(work() for _ in range(9)) * 1e6))
"""
"""Prints how many microseconds some work takes."""
SLOW = 1.3
"""How many times as long it may take as with another Python. Those that pyenv builds lack the optimisations that
distributions switch on, and take up to twice as long for everything."""
VENV_MISSING = """\
{python} ({version}) cannot make virtual environments: its ensurepip or venv is missing.
On Debian and Ubuntu: apt-get install python3-venv"""
PYTHON_MISSING = """\
Toolcrib needs Python 3.11, 3.12 or 3.13, and none of {names} is one.
Install one, or name it: make up PYTHON=/path/to/python3.12"""


def main(arguments: list[str]) -> int:
    """Run the command line; 0 where the environment is ready, 1 with a message where it cannot be made."""
    folder = (ROOT / (arguments[0] if arguments else ".venv")).resolve()
    stamp = folder / ".toolcrib-stamp"
    wanted = fingerprint(folder)
    if stamp.is_file() and stamp.read_text() == wanted and works(folder / "bin" / "python"):
        return 0
    try:
        if not works(folder / "bin" / "python"):
            create(folder)
        install(folder)
    except Problem as problem:
        print(problem, file=sys.stderr)
        return 1
    stamp.write_text(wanted)
    print(f"Ready: {folder.name} ({version_text(folder / 'bin' / 'python')})", flush=True)
    return 0


class Problem(Exception):
    """Why there is no environment, for the person who reads it."""


def fingerprint(folder: Path) -> str:
    """Changes with whatever the environment is made from."""
    digest = hashlib.sha256(str(folder).encode())
    for path in (BOOTSTRAP, LOCK, *(source / "pyproject.toml" for source in SOURCES), Path(__file__)):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def works(python: Path) -> bool:
    """Whether the environment's own Python runs and is a supported one."""
    return python.exists() and probe(str(python), "import sys; print(*sys.version_info[:2])") in SUPPORTED


def probe(python: str, code: str) -> tuple[int, ...] | None:
    """The version of an interpreter that can run `code`, else None."""
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60)
        return tuple(map(int, done.stdout.split())) if done.returncode == 0 else None
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


def create(folder: Path) -> None:
    """A fresh environment of the newest supported Python.

    Raises:
        Problem: there is none, or it lacks venv.
    """
    named = os.environ.get("PYTHON")
    names = (named,) if named else CANDIDATES
    broken = ""
    for name in names:
        found = shutil.which(name)
        if found is None:
            continue
        version = probe(found, PROBE)
        if version in SUPPORTED:
            if not named:
                found = faster(found, version, folder)
            say(f"Making {folder.name} with {version_text(found)}")
            shutil.rmtree(folder, ignore_errors=True)
            run([found, "-m", "venv", str(folder)])
            return
        version = probe(found, "import sys; print(*sys.version_info[:2])")
        if version in SUPPORTED and not broken:
            broken = VENV_MISSING.format(python=name, version=".".join(map(str, version)))
    raise Problem(broken or PYTHON_MISSING.format(names=", ".join(names)))


def faster(first: str, version: tuple[int, ...], folder: Path) -> str:
    """The first other Python of the same minor version on PATH beside which `first` is `SLOW`; `first` where there is none.

    None of `folder`, which is about to be made.
    """
    taken, seen = probe(first, SPEED), {os.path.realpath(first)}
    for name, each in ((name, each) for name in CANDIDATES for each in os.get_exec_path()):
        other = shutil.which(name, path=each)
        if not taken or other is None or folder in Path(other).parents or os.path.realpath(other) in seen:
            continue
        seen.add(os.path.realpath(other))
        if probe(other, PROBE) != version:
            continue
        if (its := probe(other, SPEED)) and its[0] * SLOW < taken[0]:
            say(f"{other} is much faster than {first}. To have the other: PYTHON={first}")
            return other
    return first


def install(folder: Path) -> None:
    """Exactly the locked packages, and Toolcrib and its client, editable; no index is asked for these two."""
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    uv = folder / "bin" / "uv"
    packages = sum(line[:1].isalnum() for line in LOCK.read_text().splitlines())
    say(f"Installing {packages} locked packages (a minute or two the first time)")
    with_uv = attempt([*pip, "install", "--quiet", "--require-hashes", "-r", str(BOOTSTRAP)])
    if with_uv:
        environment = uv_environment(pip, folder)
        locked = [str(uv), "pip", "sync", "--require-hashes", str(LOCK)]
        with_uv = attempt(locked, environment)
    if not with_uv:
        say("uv does not get them here; pip does it")
        run([*pip, "install", "--progress-bar", "on", "--require-hashes", "-r", str(LOCK)])
    say("Installing Toolcrib, editable")
    run([*pip, *own_distributions()])


def own_distributions() -> list[str]:
    """What pip is told to install Toolcrib and its client, which are in no index."""
    editable = [part for source in SOURCES for part in ("-e", str(source))]
    return ["install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", *editable]


def uv_environment(pip: list[str], folder: Path) -> Mapping[str, str]:
    """The environment for uv, with pip's index, certificates and timeout: uv does not read pip's settings."""
    listed = subprocess.run([*pip, "config", "list"], capture_output=True, text=True, check=False).stdout
    pairs = (line.partition("=") for line in listed.splitlines())
    settings = {key.rpartition(".")[2]: value.strip("'\"") for key, _, value in pairs}
    given = {
        "UV_DEFAULT_INDEX": settings.get("index-url"),
        "UV_INDEX": settings.get("extra-index-url"),
        "UV_FIND_LINKS": settings.get("find-links"),
        "SSL_CERT_FILE": settings.get("cert"),
        "UV_HTTP_TIMEOUT": settings.get("default-timeout") or settings.get("timeout"),
    }
    own = {"VIRTUAL_ENV": str(folder), "UV_PYTHON_DOWNLOADS": "never"}
    return {**{key: value for key, value in given.items() if value}, **os.environ, **own}


def attempt(command: list[str], environment: Mapping[str, str] | None = None) -> bool:
    """Run a command that may fail; its output goes to the terminal."""
    return subprocess.run(command, env=environment, check=False).returncode == 0


def run(command: list[str]) -> None:
    """Run a command that must succeed.

    Raises:
        Problem: it did not; its own output says why.
    """
    if not attempt(command):
        raise Problem(f"This did not work: {Path(command[0]).name} {' '.join(command[1:6])} …")


def version_text(python: str | Path) -> str:
    """`Python 3.12.1`."""
    return subprocess.run(
        [str(python), "--version"], capture_output=True, text=True, check=False
    ).stdout.strip()


def say(text: str) -> None:
    """One line of progress."""
    print(f"→ {text}", flush=True)


if __name__ == "__main__":
    # It is ignored from the start where a shell runs this in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print("\nInterrupted; run it again, it goes on where it was.", file=sys.stderr)
        sys.exit(130)
