"""The types of the client's wheel, as they look from outside: to pyright and to mypy, in a program that uses them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import client_smoke
from mcp_peers import environments

pytestmark = pytest.mark.peers
ADAPTERS = ("langchain", "openai_agents", "pydantic_ai")
"""Their frameworks are not installed here, so their base classes are unknown."""
PROGRAM = """
from collections.abc import AsyncIterator, Iterator
from typing import Any

from toolcrib_client import AsyncToolcrib, CallResult, Change, InvalidArguments, SearchAnswer, Tool, Toolcrib, ToolcribError
from toolcrib_client.metrics import ClientMetrics


def use(crib: Toolcrib) -> str | None:
    tools: tuple[Tool, ...] = crib.tools()
    found: SearchAnswer = crib.search("a", limit=3)
    try:
        done: CallResult = crib.call(found.hits[0].name, {"a": 1}, deadline=3)
    except InvalidArguments as error:
        return str(error.errors[0]["pointer"])
    except ToolcribError as error:
        return error.code
    functions: list[dict[str, Any]] = crib.openai_tools()
    message: dict[str, Any] = crib.openai_answer({"id": "1"})
    changes: Iterator[Change] = crib.watch()
    return f"{tools} {done.result} {functions} {message} {next(changes).kind}"


async def token() -> str:
    return "a.b.c"


async def used() -> tuple[str, ...]:
    async with AsyncToolcrib("http://127.0.0.1:9", token, observe=None) as crib:
        changes: AsyncIterator[Change] = crib.watch()
        async for change in changes:
            print(change.tools[0].digest)
        return (await crib.rediscover()).lost


with Toolcrib("http://127.0.0.1:9", lambda: "a.b.c", observe=ClientMetrics()) as crib:
    use(crib)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has the wheel, its dependencies and what the extra `metrics` brings."""
    folder = tmp_path_factory.mktemp("types")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    client_smoke.call(build, client_smoke.ROOT / "client")
    (wheel,) = folder.glob("*.whl")
    python, _ = client_smoke.install(wheel, folder)
    client_smoke.call([python, "-m", "pip", "install", "-q", "-c", "locked.txt", "prometheus-client"], folder)
    (folder / "program.py").write_text(PROGRAM)
    return Path(python)


def pyright(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = environments.node_modules() / "pyright" / "index.js"
    folder = python.parents[2]
    # it takes the interpreter of a virtual environment from PATH, and leaves symbolic links as they are
    return subprocess.run(
        [environments.node(), program, "--pythonpath", python, "--outputjson", *arguments],
        cwd=folder, env={"PATH": f"{python.parent}:/usr/bin:/bin", "HOME": str(folder)},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


def test_every_public_name_has_a_type_that_pyright_knows(installed: Path) -> None:
    done = pyright(installed, "--verifytypes", "toolcrib_client", "--ignoreexternal")
    symbols = json.loads(done.stdout)["typeCompleteness"]["symbols"]
    own = [s for s in symbols if s["name"].split(".")[1:2] and s["name"].split(".")[1] not in ADAPTERS]

    assert len(own) > 200
    assert [s["name"] for s in own if not s["isTypeKnown"] or s["isTypeAmbiguous"]] == []


def test_a_program_that_uses_it_is_clean_under_strict_pyright(installed: Path) -> None:
    folder = installed.parents[2]
    (folder / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict", "include": ["program.py"]}')

    found = json.loads(pyright(installed).stdout)

    assert found["summary"]["filesAnalyzed"] == 1
    assert [(d["range"]["start"]["line"], d["message"]) for d in found["generalDiagnostics"]] == []


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_a_program_that_uses_it_is_clean_under_strict_mypy_for_each_version(
    installed: Path, version: str
) -> None:
    folder = installed.parents[2]
    mypy = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file",
        "",
        "--python-executable",
        str(installed),
    ]

    done = subprocess.run(
        [*mypy, "--python-version", version, "--cache-dir", str(folder / version), "program.py"],
        cwd=folder, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip

    assert done.stdout == "Success: no issues found in 1 source file\n", done.stdout + done.stderr
