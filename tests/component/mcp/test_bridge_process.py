"""`toolcrib mcp` as clients run it: a child process that speaks over its pipes, and ends when it should."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from local_proof import proven
from mcp_bridge import BridgeProcess, modern, plain
from mcp_stub import Wire, mcp_stub
from toolcrib_cli.bridge.messages import MAX_LINE
from toolcrib_cli.local import accounts
from toolcrib_cli.local.store import Store

TOKEN = "not-a-token.but-a.secret"


def echo(wire: Wire) -> None:
    """Answers every request with the token that came."""
    wire.result(authorized=wire.headers["authorization"] != "")


def test_messages_go_in_and_answers_come_out_between_junk_of_every_kind() -> None:
    with mcp_stub(echo) as stub, BridgeProcess("--url", stub.url, token=TOKEN) as bridge:
        bridge.send(b"", b"junk \xff", b"{" + b" " * MAX_LINE, modern("tools/list", 1))
        answers = [bridge.receive() for _ in range(3)]
        assert bridge.close_input() == 0

    assert sorted(a.get("error", {}).get("code", 0) for a in answers) == [-32700, -32700, 0]
    assert [w.path for w in stub.asked] == ["/mcp"]
    assert stub.asked[0].headers["authorization"] == f"Bearer {TOKEN}"


def test_the_direct_view_has_a_path_of_its_own() -> None:
    with mcp_stub(echo) as stub, BridgeProcess("--url", stub.url, "--direct", token=TOKEN) as bridge:
        bridge.ask(plain("ping", 1))
    assert [w.path for w in stub.asked] == ["/mcp/direct"]


def test_what_a_script_pipes_in_is_answered_before_the_end() -> None:
    with mcp_stub(echo) as stub:
        done = subprocess.run(
            [sys.executable, "-m", "toolcrib_cli", "mcp", "--url", stub.url],
            input=b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}',  # without a line's end
            env={**os.environ, "TOOLCRIB_TOKEN": TOKEN},
            capture_output=True,
            timeout=60,
            check=True,
        )
    assert done.stdout == b'{"jsonrpc": "2.0", "id": 1, "result": {"authorized": true}}\n'


@pytest.mark.parametrize("how", ["end of input", "SIGTERM", "nobody reads"])
def test_it_ends_when_the_client_is_done_and_closes_what_is_under_way(how: str) -> None:
    began, closed = threading.Event(), threading.Event()

    def answer(wire: Wire) -> None:
        if wire.message["id"] == 1:
            began.set()
            if wire.gone():
                closed.set()
        else:
            wire.result()

    reads = how != "nobody reads"
    with mcp_stub(answer) as stub, BridgeProcess("--url", stub.url, token=TOKEN, reads=reads) as bridge:
        bridge.send(plain("tools/call", 1, name="slow"))
        assert began.wait(60)
        if how == "SIGTERM":
            bridge.process.send_signal(signal.SIGTERM)
        elif how == "end of input":
            bridge.close_input()
        else:
            bridge.send(plain("ping", 2))
        assert bridge.process.wait(60) == 0
        assert closed.wait(60)
        assert bridge.lines == []


def test_a_token_file_is_read_again_when_its_token_has_ended(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first")

    def answer(wire: Wire) -> None:
        if wire.headers["authorization"] == "Bearer second":
            wire.result()
        else:
            file.write_text("second")  # the file is renewed at that moment
            wire.answer({"code": "invalid_token", "detail": "The token has expired."}, 401)

    flags = ("--token-file", str(file))
    with (
        mcp_stub(answer) as stub,
        BridgeProcess("--url", stub.url, *flags, secrets=("first", "second")) as bridge,
    ):
        assert "result" in bridge.ask(plain("ping", 1))


def test_in_the_local_mode_it_finds_the_registry_and_mints_what_the_issuer_of_now_accepts(
    tmp_path: Path,
) -> None:
    """The local mode starts after the bridge, and again with another key and at another port."""
    data = tmp_path / "data"
    tokens: list[str] = []

    def answer(wire: Wire) -> None:
        if proven(wire, data):
            return
        tokens.append(wire.headers["authorization"].removeprefix("Bearer "))
        if len(tokens) == 2:
            wire.answer({"code": "invalid_token", "detail": "The key is unknown."}, 401)
        else:
            wire.result()

    with mcp_stub(answer) as stub, BridgeProcess("--as", "bot", "--data", str(data)) as bridge:
        bridge.send(plain("ping", 1))
        store = Store.open(data)
        store.write_state(stub.url, ["team/bot"])
        assert "result" in bridge.receive()
        store.close()
        store = Store.open(data)
        store.write_state(stub.url, ["team/bot"])
        assert "result" in bridge.ask(plain("ping", 2))
        store.close()
        bridge.secrets += tokens

    assert len(tokens) == 3
    assert tokens[0] == tokens[1] != tokens[2]
    assert accounts.find(data, "bot") == ("team", "bot")


def test_a_registry_that_was_killed_is_an_error_for_each_request_until_it_is_back() -> None:
    with mcp_stub(echo) as stub:
        port = int(stub.url.rpartition(":")[2])
        stack = contextlib.ExitStack()
        bridge = stack.enter_context(BridgeProcess("--url", stub.url, "--wait", "0.3", token=TOKEN))
        assert "result" in bridge.ask(plain("ping", 1))
    with stack:
        for number in (2, 3):
            assert bridge.ask(plain("ping", number))["error"]["data"]["code"] == "unreachable"
        with mcp_stub(echo, port):
            assert "result" in bridge.ask(plain("ping", 4))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "no identity specified"),
        (("--as", "x", "--url", "ftp://x"), "invalid address"),
        (("--as", "x", "--url", "http://u:p@127.0.0.1:9"), "it has credentials"),
        (("--as", "x", "--ca-file", __file__), "contains no usable certificate"),
    ],
)
def test_what_can_never_work_ends_it_at_once(arguments: tuple[str, ...], said: str) -> None:
    with BridgeProcess(*arguments) as bridge:
        assert bridge.process.wait(60) == 2
    assert said in bridge.errors.decode()
    assert bridge.lines == []
