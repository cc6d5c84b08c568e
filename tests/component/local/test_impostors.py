"""Tokens go to the running local mode of the data folder, never to another program that listens at its address."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from impostor import Impostor, http, impostor
from local_mode import HEIST, LocalMode
from mcp_bridge import BridgeProcess, plain
from toolcrib_cli import main as cli
from toolcrib_cli import options
from toolcrib_cli.errors import Exit
from toolcrib_cli.local import listener
from toolcrib_cli.local.store import Store

REGISTRY = http(
    json.dumps(
        {"service": "toolcrib", "tools": [], "revision": "1.1", "objects": [], "others": {}, "calls": []}
    ).encode()
)
COMMANDS = {
    "tools": ["tools", "--as", "team/bot"],
    "search": ["search", "add numbers", "--as", "team/bot"],
    "describe": ["describe", "calculator", "--as", "team/bot"],
    "load": ["load", "calculator", "--as", "team/bot"],
    "call": ["call", "calculator", "expression=1", "--as", "team/bot"],
    "access": ["access", "who-can", "calculator"],
    "get": ["get", "tools"],
    "calls": ["calls", "pending"],
    "approvals": ["approvals", "list"],
}
Answers = Callable[[int, bytes], bytes | None]


def nonce_of(head: bytes) -> str:
    found = re.search(rb"nonce=([0-9a-f]+)", head)
    return "" if found is None else found[1].decode()


def proves(key: str, url: str) -> Answers:
    """It answers with the proof for this key and address."""
    return lambda _, head: http(json.dumps({"proof": listener.proof(key, url, nonce_of(head))}).encode())


WAYS: dict[str, Answers] = {
    "closes": lambda *_: None,
    "a registry": lambda *_: REGISTRY,
    "not found": lambda *_: http(b"{}", "404 Not Found"),
    "the nonce": lambda _, head: http(json.dumps({"proof": nonce_of(head)}).encode()),
    "a list": lambda *_: http(b"[]"),
    "no text": lambda *_: http(b'{"proof": 7}'),
    "no length": lambda *_: b'HTTP/1.1 200 OK\r\n\r\n{"proof": ""}',
    "no HTTP": lambda *_: b"x" * 10_000,
    "the key of an earlier run": proves("earlier", "http://127.0.0.1:1"),
}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("TOOLCRIB_URL", "TOOLCRIB_TOKEN", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TOOLCRIB_DATA", str(folder := tmp_path / "data"))
    return folder


@contextmanager
def recorded(data: Path, url: str) -> Iterator[str]:
    """A process that uses the data folder and left this address; its key."""
    store = Store.open(data)
    store.write_state(url, ["team/bot"])
    try:
        yield store.key
    finally:
        store.close()


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(list(arguments))
    return int(ended.value.code or 0)


def holds_nothing(listening: Impostor, key: str = "no key") -> None:
    seen = listening.all.lower()
    for secret in (b"authorization", b"bearer", b"eyj", key.lower().encode()):
        assert secret not in seen, listening.all
    assert all(each.startswith(b"GET /local/proof?nonce=") for each in listening.received if each)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("before", ["never started", "stopped"])
def test_while_no_local_mode_runs_nothing_is_sent_at_all(
    data: Path, command: str, before: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither to the default address nor to the one that a local mode left, which had no time to say good-bye."""
    with impostor(WAYS["a registry"]) as listening:
        monkeypatch.setattr(options, "DEFAULT_PORT", listening.port)
        if before == "stopped":
            with recorded(data, listening.url):
                pass
        else:
            data.mkdir(mode=0o700)
        ended = run(*COMMANDS[command])
    assert ended not in (0, None)
    assert listening.received == []
    said = capsys.readouterr().err
    assert "no local mode runs" in said or command == "access", said


@pytest.mark.parametrize("command", COMMANDS)
def test_a_listener_that_does_not_prove_itself_gets_no_token(
    data: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As while `up` starts or stops: it uses the folder, and the address is another program's."""
    with impostor(WAYS["a registry"]) as listening, recorded(data, listening.url) as key:
        assert run(*COMMANDS[command]) == Exit.UNREACHABLE
    holds_nothing(listening, key)
    assert any(listening.received), "it was asked for the proof"


@pytest.mark.parametrize("way", WAYS)
def test_no_other_answer_is_a_proof(data: Path, way: str) -> None:
    with impostor(WAYS[way]) as listening, recorded(data, listening.url) as key:
        assert run(*COMMANDS["tools"]) == Exit.UNREACHABLE
        assert run("get", "tools") == Exit.UNREACHABLE
    holds_nothing(listening, key)


def test_a_listener_that_says_nothing_gets_no_token(data: Path) -> None:
    with impostor(lambda *_: b"") as listening, recorded(data, listening.url) as key:
        assert run(*COMMANDS["tools"]) != 0
    holds_nothing(listening, key)


def test_the_proof_of_the_local_mode_at_another_address_is_none(data: Path) -> None:
    """A program that passes the question on to the real one."""
    real = "http://127.0.0.1:1"
    keys: list[str] = []
    with impostor(lambda n, head: proves(keys[0], real)(n, head)) as listening:
        with recorded(data, listening.url) as key:
            keys.append(key)
            assert run(*COMMANDS["tools"]) == Exit.UNREACHABLE
        holds_nothing(listening, key)


@pytest.mark.parametrize(
    "command", [[*COMMANDS["tools"], "--url"], ["access", "who-can", "x", "--as", "team/bot", "--registry"]]
)
@pytest.mark.parametrize(
    "form", ["http://127.0.0.1:{}", "http://localhost:{}/", "http://[::1]:{}", "https://127.0.0.1:{}", "http://127.1:{}"]
)  # fmt: skip
def test_another_address_gets_no_minted_token_though_a_person_names_it(
    data: Path, command: list[str], form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with impostor(WAYS["a registry"]) as listening, recorded(data, "http://127.0.0.1:1"):
        assert run(*command, form.format(listening.port)) == Exit.USAGE
    assert listening.received == []
    assert "is not the local mode of" in capsys.readouterr().err


def test_another_program_at_a_former_address_gets_no_token_though_the_new_run_answers_for_it(
    data: Path,
) -> None:
    """The local mode ends between two pages of a list, begins again at another port, and a program relays the question."""
    page = {"revision": "1.1", "tools": []}
    now: list[str] = []

    def answer(connection: int, head: bytes) -> bytes | None:
        if b"/local/proof" in head:
            return proves(key, now[-1])(connection, head)
        state = json.loads((data / "local.json").read_text())
        now.append("http://127.0.0.1:1")
        (data / "local.json").write_text(json.dumps({**state, "url": now[-1]}))
        more = {"next_cursor": "next"} if connection == 1 else {}
        return http(json.dumps(page | more).encode()).replace(b"\r\n", b"\r\nconnection: close\r\n", 1)

    with impostor(answer) as listening, recorded(data, listening.url) as key:
        now.append(listening.url)
        assert run(*COMMANDS["tools"]) == Exit.UNREACHABLE
    assert b"Bearer eyJ" in listening.received.pop(0), "the proven one got the token"
    holds_nothing(listening)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_each_connection_is_proven_by_itself(data: Path, host: str) -> None:
    """The local mode ends between two pages of a list, and another program takes its port."""
    page = json.dumps({"revision": "1.1", "tools": [], "next_cursor": "next"}).encode()
    keys: list[str] = []

    def answer(connection: int, head: bytes) -> bytes | None:
        if connection > 1:
            return REGISTRY
        if b"/local/proof" in head:
            return proves(keys[0], listening.url)(connection, head)
        return http(page).replace(b"\r\n", b"\r\nconnection: close\r\n", 1)

    with impostor(answer) as listening, recorded(data, listening.url) as key:
        keys.append(key)
        assert run(*COMMANDS["tools"], "--url", f"http://{host}:{listening.port}") == Exit.UNREACHABLE
    first, *others = map(bytes, listening.received)
    assert b"Bearer eyJ" in first, "the proven one got the token"
    assert others
    listening.received.pop(0)
    holds_nothing(listening)


@pytest.mark.parametrize("way", ["a registry", "closes", "the nonce", "no HTTP", "not found"])
def test_the_bridge_waits_and_sends_no_token_to_another_program(data: Path, way: str) -> None:
    with impostor(WAYS[way]) as listening, recorded(data, listening.url) as key:
        flags = ("--as", "team/bot", "--data", str(data), "--wait", "0.5")
        with BridgeProcess(*flags, secrets=(key,)) as bridge:
            error = bridge.ask(plain("ping", 1))["error"]
    assert error["data"]["code"] == "unreachable"
    holds_nothing(listening, key)
    assert len(listening.received) > 1, "it asks again"


def test_the_bridge_asks_nobody_while_no_local_mode_runs(data: Path) -> None:
    with impostor(WAYS["a registry"]) as listening:
        with recorded(data, listening.url):
            pass
        with BridgeProcess("--as", "team/bot", "--data", str(data), "--wait", "0.5") as bridge:
            error = bridge.ask(plain("ping", 1))["error"]
        assert "messages wait for it" in bridge.errors.decode()
    assert (error["data"]["code"], "no local mode runs" in error["message"]) == ("unreachable", True)
    assert listening.received == []


def test_after_a_kill_whoever_has_the_port_gets_nothing_and_the_local_mode_is_found_again(
    tmp_path: Path,
) -> None:
    with LocalMode(tmp_path, HEIST) as local:
        key = json.loads((local.data / "local.json").read_text())["key"]
        (session := tmp_path / "s.json").write_text(
            json.dumps(
                {
                    "session": {"name": "s"},
                    "agents": [{"name": "hacker", "account": "heist/hacker", "prompt": "Look."}],
                }
            )
        )
        flags = ("--as", "hacker", "--data", str(local.data), "--wait", "60")
        with BridgeProcess(*flags) as bridge:
            assert "result" in bridge.ask(plain("ping", 1))
            local.child.kill()
            with impostor(WAYS["a registry"], int(local.url.rpartition(":")[2])) as listening:
                for command in (
                    ["tools", "--as", "hacker"],
                    ["call", "calculator", "expression=1", "--as", "safecracker"],
                    ["get", "tools"],
                    ["session", "run", str(session)],
                ):
                    assert local.toolcrib(*command).returncode == Exit.UNREACHABLE, command
                bridge.send(plain("ping", 2))
            assert listening.received == []
            holds_nothing(listening, key)
            local.start()
            assert "result" in bridge.receive(lambda m: m.get("id") == 2)
        assert local.toolcrib("tools", "--as", "hacker").returncode == 0
        by_name = ("tools", "--as", "hacker", "--url", local.url.replace("127.0.0.1", "localhost"))
        assert local.toolcrib(*by_name).returncode == 0
