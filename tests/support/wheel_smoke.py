"""Smoke run of the built wheels, as a user would install it: in a clean environment, away from the source.

    python tests/support/wheel_smoke.py dist/*.whl

Checks that every package imports, that the console scripts run, and that `toolcrib up` answers and ends at Ctrl-C
with nothing left behind. Exit status 0, or 1 with what was wrong.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "toolcrib",
    "toolcrib_operator",
    "toolcrib_registry",
    "toolcrib_runner",
    "toolcrib_cli",
    "toolcrib_client",
)
SCRIPTS = ("toolcrib", "kubectl-toolcrib", "toolcrib-operator", "toolcrib-registry", "toolcrib-runner")
READY_WITHIN, GONE_WITHIN = 90.0, 20.0  # seconds
ADDRESS = re.compile(r"http://(?:127\.0\.0\.1|localhost):(\d+)")


class SmokeError(Exception):
    """What was wrong with the wheel."""


def main(arguments: Sequence[str]) -> int:
    """Run the command line."""
    folder = Path(tempfile.mkdtemp(prefix="toolcrib-wheel-"))
    try:
        binaries = install([Path(wheel).resolve() for wheel in arguments], folder / "venv")
        check_imports(binaries, folder)
        check_scripts(binaries, folder)
        check_up(binaries, folder)
    except SmokeError as error:
        print(f"wheel: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("wheel: installs, imports, starts, answers and stops")
    return 0


def install(wheels: Sequence[Path], venv: Path) -> Path:
    """A clean environment with the locked run-time dependencies and the wheels; its folder of programs."""
    print(f"wheel: installing {', '.join(wheel.name for wheel in wheels)}", flush=True)
    call([sys.executable, "-m", "venv", str(venv)], venv.parent)
    python = str(venv / "bin" / "python")
    lock = str(ROOT / "requirements" / "runtime.txt")
    uv = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", python]
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    with_uv = subprocess.run([*uv, "--require-hashes", "-r", lock], check=False).returncode == 0
    if not with_uv:
        call([*pip, "--require-hashes", "-r", lock], venv.parent)
    call([*pip, "--no-deps", "--no-index", *map(str, wheels)], venv.parent)
    call([python, "-m", "pip", "check", "--disable-pip-version-check"], venv.parent)
    return venv / "bin"


def check_imports(binaries: Path, folder: Path) -> None:
    """Every package comes from the wheel, and Python warns of nothing."""
    code = f"import {', '.join(PACKAGES)}\nfor m in ({', '.join(PACKAGES)}): assert 'site-packages' in m.__file__"
    call([str(binaries / "python"), "-c", code], folder)


def check_scripts(binaries: Path, folder: Path) -> None:
    """Every console script is there; `toolcrib version` and the offline commands work."""
    for name in SCRIPTS:
        if not (binaries / name).exists():
            raise SmokeError(f"no console script {name}")
    version = call([str(binaries / "toolcrib"), "version"], folder)
    wanted = re.search(r'__version__ = "(.+)"', (ROOT / "core" / "toolcrib" / "version.py").read_text())
    if wanted is None or wanted[1] not in version:
        raise SmokeError(f"`toolcrib version` says {version.strip()!r}")
    if "CustomResourceDefinition" not in call([str(binaries / "toolcrib"), "crds"], folder):
        raise SmokeError("`toolcrib crds` prints no CRD")
    # the store of sessions is made by files of the wheel
    call([str(binaries / "toolcrib"), "session", "list", "--data", str(folder / "data")], folder)


def check_up(binaries: Path, folder: Path) -> None:
    """`toolcrib up --demo` on a free port says where it is, answers /health, and ends at Ctrl-C."""
    log = folder / "up.log"
    command = [str(binaries / "toolcrib"), "up", "--port", "0", "--data", str(folder / "data"), "--demo"]
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment(folder),
            start_new_session=True,
        )
    try:
        wait_healthy(process, log)
        if "4 Tools" not in log.read_text():
            raise SmokeError(f"`toolcrib up --demo` has not its four tools:\n{log.read_text()[-2000:]}")
        process.send_signal(signal.SIGINT)
        status = process.wait(GONE_WITHIN)
    except subprocess.TimeoutExpired:
        raise SmokeError(f"`toolcrib up` is still there {GONE_WITHIN:g} s after Ctrl-C") from None
    finally:
        left = kill_group(process)
    if status not in (0, 130, -signal.SIGINT):
        raise SmokeError(f"`toolcrib up` ended with {status}:\n{log.read_text()[-2000:]}")
    if left:
        raise SmokeError("`toolcrib up` left processes behind")


def wait_healthy(process: subprocess.Popen[bytes], log: Path) -> None:
    """Poll until the registry answers at the address that `up` printed."""
    deadline = time.monotonic() + READY_WITHIN
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise SmokeError(f"`toolcrib up` ended with {process.returncode}:\n{log.read_text()[-2000:]}")
        for port in set(ADDRESS.findall(log.read_text())):
            if healthy(f"http://127.0.0.1:{port}/health"):
                return
        time.sleep(0.2)
    raise SmokeError(f"`toolcrib up` does not answer after {READY_WITHIN:g} s:\n{log.read_text()[-2000:]}")


def healthy(url: str) -> bool:
    """Whether the address answers `status: healthy`."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=2) as answer:
            return b'"healthy"' in answer.read(10_000)
    except OSError:
        return False


def kill_group(process: subprocess.Popen[bytes]) -> bool:
    """End whatever is left of the process and its children; whether children were."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    finally:
        process.wait()
    return True


def environment(folder: Path) -> dict[str, str]:
    """A plain user's environment, with a home of its own."""
    kept = {k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "LC_ALL", "TMPDIR")}
    return {**kept, "HOME": str(folder), "PYTHONWARNINGS": "default", "COLUMNS": "200"}


def call(command: Sequence[str], folder: Path) -> str:
    """Run a command away from the source; its output."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        raise SmokeError(f"{' '.join(command[:4])} …: {(done.stderr or done.stdout)[-2000:]}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
