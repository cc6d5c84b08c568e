"""The client's wheel alone: installed as a user would, beside nothing of ours.

    python tests/support/client_smoke.py [--size] dist/toolcrib_client-*.whl

Runs the guide's examples against a registry and pip's check, in each Python of 3.11 to 3.13 that is on this machine.
With `--size` it measures instead, against budgets:
what the wheel and its dependencies add to Python, bytecode included, and its import beside that of httpx2. Exit
status 0, or 1 with what was wrong.
"""

import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from registry_harness import backend, binding, running_registry, tool
from stub_server import Answer, answering
from wheel_smoke import ROOT, SmokeError, call

MOST_MB, MOST_IMPORT = 6.0, 1.5
ROUNDS = 9
VERSIONS = ("3.11", "3.12", "3.13")
PYENV = Path.home() / ".pyenv" / "versions"
GUIDE = ROOT / "docs" / "guides" / "client-library.md"
EXPRESSION = {"type": "object", "properties": {"expression": {"type": "string"}}}


def main(arguments: Sequence[str]) -> int:
    """Run the command line."""
    wheel = Path(arguments[-1]).resolve()
    try:
        if "--size" in arguments:
            with tempfile.TemporaryDirectory(prefix="toolcrib-client-") as folder:
                python, megabytes = install(wheel, Path(folder))
                measure(python, megabytes, Path(folder))
            return 0
        for version, interpreter in pythons().items():
            with tempfile.TemporaryDirectory(prefix="toolcrib-client-") as folder:
                python, _ = install(wheel, Path(folder), interpreter)
                run_examples(python, Path(folder), version)
    except SmokeError as error:
        print(f"client: {error}", file=sys.stderr)
        return 1
    return 0


def pythons() -> dict[str, str]:
    """An interpreter of each version that the client is tested on, as far as they are here; at least this one."""
    found = dict.fromkeys(VERSIONS, "") | {f"{sys.version_info[0]}.{sys.version_info[1]}": sys.executable}
    for version in VERSIONS:
        here = [shutil.which(f"python{version}"), *sorted(PYENV.glob(f"{version}.*/bin/python"))]
        for candidate in [str(path) for path in (found[version], *here) if path]:
            # a shim of pyenv is on PATH whether or not its version is switched on
            if subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode == 0:
                found[version] = candidate
                break
    if missing := [version for version, path in found.items() if not path]:
        print(f"client: not tried, no such Python is here: {', '.join(missing)}")
    return {version: path for version, path in found.items() if path}


def install(wheel: Path, folder: Path, interpreter: str = sys.executable) -> tuple[str, float]:
    """A clean environment with the wheel and its dependencies as they are locked; its Python, and MB installed."""
    call([interpreter, "-m", "venv", str(folder / "venv")], folder)
    python = str(folder / "venv" / "bin" / "python")
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    locked = re.findall(
        r"^([\w.-]+==[^\s\\]+)", (ROOT / "requirements" / "runtime.txt").read_text(), re.MULTILINE
    )
    (folder / "locked.txt").write_text("\n".join(locked))
    before = size(packages)
    pip = [python, "-m", "pip", "--disable-pip-version-check"]
    call([*pip, "install", "--quiet", "-c", str(folder / "locked.txt"), str(wheel)], folder)
    call([*pip, "check"], folder)
    call([python, "-m", "compileall", "-q", str(packages)], folder)
    return python, (size(packages) - before) / 1e6


def size(folder: Path) -> int:
    """Bytes of all files but pip's own, which compiling changes."""
    files = (p for p in folder.rglob("*") if p.is_file())
    return sum(p.stat().st_size for p in files if p.relative_to(folder).parts[0] not in ("pip", "setuptools"))


def measure(python: str, megabytes: float, folder: Path) -> None:
    """Print both figures.

    Raises:
        SmokeError: one is above its budget.
    """
    code = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"
    times = {
        name: [float(call([python, "-c", code.format(name)], folder)) for _ in range(ROUNDS)]
        for name in ("httpx2", "toolcrib_client")
    }
    base, own = (statistics.median(times[name]) for name in ("httpx2", "toolcrib_client"))
    print(f"client: {megabytes:.2f} MB installed (at most {MOST_MB:g})")
    print(
        f"client: import {own * 1e3:.0f} ms, {own / base:.2f} x that of httpx2 "
        f"(at most {MOST_IMPORT:g}; medians of {ROUNDS})"
    )
    if megabytes > MOST_MB or own / base > MOST_IMPORT:
        raise SmokeError("above the budget; `python -X importtime -c 'import toolcrib_client'` tells where")


def run_examples(python: str, folder: Path, version: str) -> None:
    """The guide's Python, top to bottom as one program, against a registry with a calculator.

    Raises:
        SmokeError: it failed or printed something else.
    """
    code = "\n".join(re.findall(r"^```python\n(.+?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL))
    with answering(lambda _: Answer(b'{"result": 42}')) as port:
        calculator = tool("calculator", input_schema=EXPRESSION, backend=backend(port))
        with running_registry([calculator], [binding("bot")]) as registry:
            given = {"TOOLCRIB_URL": registry.url, "TOOLCRIB_TOKEN": registry.token("team", "bot")}
            done = subprocess.run(
                [python, "-W", "error", "-c", code],
                cwd=folder,
                env={"PATH": os.environ["PATH"], **given},
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
    if done.returncode != 0 or "42" not in done.stdout or "/expression" not in done.stdout:
        raise SmokeError(f"the guide's examples: {(done.stderr or done.stdout)[-2000:]}")
    print(f"client: installs alone, and the guide's examples run, in Python {version}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
