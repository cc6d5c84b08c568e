"""What a misspelt agent or tool is answered: names that are known to the caller anyway, and no others."""

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from registry_harness import RunningRegistry, binding, running_registry, tool
from toolcrib_cli import main as cli
from toolcrib_cli import options
from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.local import accounts
from toolcrib_cli.local.listener import LocalRegistry
from toolcrib_cli.local.store import Store, is_used, read_running

ACCOUNTS = ["heist/hacker", "heist/planner", "heist/safecracker"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    (tmp_path / "local.json").write_text(json.dumps({"url": "http://127.0.0.1:1", "accounts": ACCOUNTS}))
    return tmp_path


@pytest.fixture(scope="module")
def registry() -> Iterator[RunningRegistry]:
    tools = [tool("calculator"), tool("calculate_secret", scopes=("vault:open",))]
    with running_registry(tools, [binding("bot", ("calculator:use",))]) as running:
        yield running


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(list(arguments))
    return int(ended.value.code or 0)


def test_a_misspelt_agent_is_told_whom_it_may_mean(data: Path) -> None:
    with pytest.raises(CliError) as refused:
        accounts.find(data, "safecraker")
    assert refused.value.hint == "did you mean heist/safecracker?"

    with pytest.raises(CliError) as refused:
        accounts.find(data, "xyz")
    assert refused.value.hint == f"known: {', '.join(ACCOUNTS)}"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("heist/safecraker", "did you mean heist/safecracker?"),
        ("hiest/planner", "did you mean heist/planner?"),
        ("heist/nobody", f"known: {', '.join(ACCOUNTS)}"),
    ],
)
def test_nobody_asks_as_an_account_that_the_local_mode_does_not_know(
    data: Path, name: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("tools", "--as", name, "--data", str(data)) == Exit.USAGE
    said = capsys.readouterr().err
    assert f"no account is called '{name}'" in said
    assert hint in " ".join(said.split())
    assert options.bearer("heist/planner", None, data)


def test_where_no_account_is_known_any_may_ask(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    assert options.bearer("heist/newcomer", None, tmp_path)


def test_what_a_local_mode_left_is_not_believed_where_another_process_has_its_number(data: Path) -> None:
    left = {"url": "http://127.0.0.1:1", "pid": os.getpid(), "accounts": ACCOUNTS, "key": "k"}
    in_use = Store.open(data)
    (data / "local.json").write_text(json.dumps(left))
    assert read_running(data) == left
    assert LocalRegistry(data).url() == "http://127.0.0.1:1"
    in_use.close()

    assert read_running(data) is None
    # no token goes to whoever listens at that address now, nor at the default one
    with pytest.raises(CliError, match="no local mode runs"):
        LocalRegistry(data).url()


def test_a_local_mode_starts_while_a_command_looks_whether_one_runs(data: Path) -> None:
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            is_used(data)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        for _ in range(20):
            Store.open(data).close()
    finally:
        stop.set()
        looking.join()


def test_a_bridge_for_an_account_that_the_running_local_mode_does_not_know_ends_at_once(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    running = {"url": "http://127.0.0.1:1", "pid": os.getpid(), "accounts": ACCOUNTS}
    (data / "local.json").write_text(json.dumps(running))
    in_use = Store.open(data)

    assert run("mcp", "--as", "safecraker", "--data", str(data)) == Exit.USAGE
    assert "did you mean heist/safecracker?" in capsys.readouterr().err
    assert run("mcp", "--as", "hiest/safecracker", "--data", str(data)) == Exit.USAGE
    assert "did you mean heist/safecracker?" in capsys.readouterr().err
    in_use.close()


def test_where_no_manifest_names_an_account_the_hint_says_so(data: Path) -> None:
    (data / "local.json").write_text(json.dumps({"url": "http://127.0.0.1:1", "accounts": []}))

    with pytest.raises(CliError, match="no account is called") as refused:
        accounts.find(data, "bot")
    assert str(refused.value.hint).startswith("no manifest of the local mode names an account")


@pytest.mark.parametrize("command", ["call", "describe", "load"])
def test_a_misspelt_tool_is_told_what_the_caller_may_mean_of_its_own_view(
    command: str,
    registry: RunningRegistry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TOOLCRIB_TOKEN", registry.token("team", "bot"))

    assert run(command, "calcualtor", "--url", registry.url) == Exit.NOT_PERMITTED
    assert "hint: did you mean calculator?" in capsys.readouterr().err
    # nearer to a tool that this caller does not see than to its own
    assert run(command, "calculate_secrt", "--url", registry.url) == Exit.NOT_PERMITTED
    assert "secret" not in capsys.readouterr().err
