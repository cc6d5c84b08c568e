"""Commands of ToolServers as the local mode runs them: asked by the registry's own MCP client, as servers over HTTP are."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from realparts.processes import wait_until
from toolcrib.wire.backends import PublishedBackend, PublishedProgram, SecretReference
from toolcrib_cli.local.programs.outbound import LocalPrograms
from toolcrib_registry.outbound.errors import (
    EgressRefused,
    OutboundError,
    ProtocolViolation,
    TimedOut,
    TooLarge,
    Unreachable,
)
from toolcrib_registry.outbound.guard import EgressPolicy, target
from toolcrib_registry.outbound.programs import BesidePrograms
from toolcrib_registry.upstream.client import McpClient
from toolcrib_registry.upstream.servers import Asking, Question, Server

STUB = str(Path(__file__).parents[2] / "support" / "mcp_stdio_stub.py")
pytestmark = pytest.mark.anyio
REFERENCE = SecretReference(namespace="heist", name="keys", key="key")


class Stage:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.secrets = {"key": "open-sesame"}
        self.programs = LocalPrograms(
            ["heist/stub"], folder, os.environ["PATH"], lambda reference: self.secrets.get(reference.key)
        )
        self.client = McpClient(BesidePrograms(None, self.programs))  # type: ignore[arg-type]
        self.log = folder / "heist/stub/stderr.log"

    def server(self, *modes: str, command: tuple[str, ...] = (), **secrets: SecretReference) -> Server:
        program = PublishedProgram(
            server="heist/stub",
            command=command or (sys.executable, "-I", "-S", STUB, *modes),
            values={"LEVEL": "debug"},
            secrets=secrets,
        )
        policy = EgressPolicy(programs=("heist/stub",))
        to = target(PublishedBackend(program=program), namespace="heist", policy=policy)
        return Server("heist/stub", to, "", "heist")

    async def call(self, server: Server, name: str, seconds: float = 20.0) -> str:
        question = Question("tools/call", {"name": name, "arguments": {}})
        answered = await self.client.ask(server, Asking(seconds), question)
        return str(answered.fields["content"][0]["text"])


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    made = Stage(tmp_path)
    try:
        yield made
    finally:
        await made.client.close()
        await made.programs.aclose()


def alive(pid: int) -> bool:
    """Whether it runs; one that ended and that nobody waited for does not."""
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


async def test_a_program_gets_its_environment_and_nothing_of_ours(stage: Stage) -> None:
    told: dict[str, Any] = json.loads(await stage.call(stage.server(KEY=REFERENCE), "env"))
    # LC_CTYPE is the interpreter's own (PEP 538)
    assert set(told["names"]) - {"LC_CTYPE"} == {"HOME", "KEY", "LEVEL", "PATH"}
    assert told["home"] == str(stage.folder / "heist/stub/home")
    assert told["fds"] == [0, 1, 2]
    assert told["pid"] == told["group"] == told["session"] != os.getsid(0)


async def test_what_a_program_asks_is_answered_unsupported_and_notices_do_not_disturb_an_answer(
    stage: Stage,
) -> None:
    server = stage.server("chatty")
    assert "unsupported" in await stage.call(server, "asks")
    assert await stage.call(server, "flood") == "done"
    listed = await stage.client.listed(server, Asking(20))
    assert len(listed.entries) == 10


async def test_a_program_that_ended_is_started_again_and_says_how_it_ended(stage: Stage) -> None:
    server = stage.server()
    with pytest.raises(Unreachable, match=r"ended with exit code 3; see .*stderr\.log"):
        await stage.call(server, "die")
    assert stage.log.read_text() == "dying\n"
    assert await stage.call(server, "flood") == "done"


async def test_what_a_program_writes_to_standard_error_is_kept_within_a_bound(stage: Stage) -> None:
    server = stage.server(command=(sys.executable, "-c", "import sys; sys.stderr.write('x' * (5 << 20))"))
    with pytest.raises(OutboundError):
        await stage.call(server, "env")
    await stage.programs.aclose()
    assert 1 << 20 <= sum(each.stat().st_size for each in stage.log.parent.glob("stderr.log*")) <= 2 << 20


async def test_a_program_that_ends_again_and_again_is_left_alone_longer_each_time(stage: Stage) -> None:
    server = stage.server("dies")
    said = []
    for _ in range(4):
        with pytest.raises(OutboundError) as failure:
            await stage.call(server, "env")
        said.append(str(failure.value))
    assert "exit code 7" in said[0]
    assert "It is started again in" in said[-1]
    assert await stage.call(stage.server(), "flood") == "done", "what was corrected is tried at once"


async def test_a_program_that_says_nothing_to_the_first_question_is_greeted_as_earlier_ones_are(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcrib_cli.local.programs.outbound._DISCOVERED_WITHIN", 0.1)
    assert await stage.call(stage.server("silent"), "flood") == "done"


async def test_a_call_has_a_deadline_and_the_next_one_is_answered(stage: Stage) -> None:
    server = stage.server()
    await stage.call(server, "flood")
    with pytest.raises(TimedOut):
        await stage.call(server, "slow", seconds=0.3)
    assert await stage.call(server, "flood") == "done"


@pytest.mark.parametrize("mode", ["stateless", "handshake"])
async def test_calls_of_a_program_that_does_not_read_end_in_time_and_pile_up_nothing(
    stage: Stage, mode: str
) -> None:
    server, question = stage.server(mode), Question("tools/call", {"name": "deaf", "pad": "x" * (3 << 20)})
    await stage.call(server, "flood")
    said = ""
    async with asyncio.timeout(15):
        while "does not read its requests" not in said:
            with pytest.raises(OutboundError) as failure:
                await stage.client.ask(server, Asking(0.3), question)
            said = str(failure.value)


async def test_a_start_that_is_given_up_leaves_no_descriptors(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: Any, **__: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio, "create_subprocess_exec", never)
    before = os.listdir("/dev/fd")
    with pytest.raises(TimedOut):
        await stage.call(stage.server(), "env", seconds=0.1)
    assert os.listdir("/dev/fd") == before


async def test_a_line_that_is_too_long_ends_the_program_and_the_next_call_starts_another(
    stage: Stage,
) -> None:
    server = stage.server()
    with pytest.raises(TooLarge):
        await stage.call(server, "huge")
    assert await stage.call(server, "flood") == "done"


async def test_an_answer_that_repeats_a_secret_is_not_handed_on_and_another_secret_starts_the_program_again(
    stage: Stage,
) -> None:
    server = stage.server(KEY=REFERENCE)
    for secret in ("open-sesame", 'open "sesame" é'):
        stage.secrets["key"] = secret
        with pytest.raises(ProtocolViolation):
            await stage.call(server, "secret")
    first = json.loads(await stage.call(server, "env"))["pid"]
    stage.secrets["key"] = "other-sesame"
    assert json.loads(await stage.call(server, "env"))["pid"] != first
    del stage.secrets["key"]
    with pytest.raises(Unreachable, match="lacks the key"):
        await stage.call(server, "env")


async def test_progress_that_repeats_a_secret_is_not_handed_on(stage: Stage) -> None:
    told = []

    async def tell(params: Any) -> None:
        told.append(params["message"])

    question = Question("tools/call", {"name": "whispers", "arguments": {}}, progress=tell)
    await stage.client.ask(stage.server(KEY=REFERENCE), Asking(20), question)
    assert told == ["half"]


async def test_a_program_that_is_not_there_is_said_so(stage: Stage) -> None:
    with pytest.raises(Unreachable, match=r"'no-such-program' .* cannot be started"):
        await stage.call(stage.server(command=("no-such-program",)), "env")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_programs_end_with_their_toolserver_and_what_they_started_with_them(stage: Stage) -> None:
    server = stage.server()
    pid = json.loads(await stage.call(server, "env"))["pid"]
    child = int(await stage.call(server, "child"))
    await stage.programs.keep(lambda name, command: True)
    assert alive(pid)
    await stage.programs.keep(lambda name, command: False)
    assert not alive(pid)
    await asyncio.to_thread(wait_until, lambda: not alive(child))


async def test_only_what_is_allowed_is_started(tmp_path: Path) -> None:
    program = PublishedProgram(server="heist/stub", command=("true",))
    backend = PublishedBackend(program=program)
    for policy in (EgressPolicy(), EgressPolicy(programs=("heist/other",))):
        with pytest.raises(EgressRefused):
            target(backend, namespace="heist", policy=policy)
    with pytest.raises(EgressRefused):
        target(backend, namespace="other", policy=EgressPolicy(programs=("*",)))
    stage = Stage(tmp_path)
    stage.programs.allowed = ()
    with pytest.raises(EgressRefused):
        await stage.call(stage.server(), "env")


KILLED = """
    import asyncio, json, sys
    from pathlib import Path
    sys.path[:0] = [{here!r}, {support!r}]
    from test_programs import Stage

    async def main():
        stage = Stage(Path({folder!r}))
        server = stage.server()
        env = json.loads(await stage.call(server, "env"))
        print(env["pid"], await stage.call(server, "child"), flush=True)
        await asyncio.Event().wait()

    asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_programs_end_when_their_starter_is_killed(tmp_path: Path) -> None:
    here = Path(__file__).parent
    code = textwrap.dedent(
        KILLED.format(here=str(here), support=str(here.parents[1] / "support"), folder=str(tmp_path))
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        pids = [int(word) for word in starter.stdout.readline().split()]
        assert len(pids) == 2
        assert all(map(alive, pids))
        starter.send_signal(signal.SIGKILL)
        starter.wait(10)
        wait_until(lambda: not any(map(alive, pids)))
