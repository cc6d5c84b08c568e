"""`toolcrib client config`: what each client reads, and files of which nothing is lost."""

import json
import re
import stat
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from toolcrib_cli import main as cli
from toolcrib_cli import options
from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.local.store import Store
from toolcrib_cli.mcp_clients.edits import with_entry
from toolcrib_cli.mcp_clients.entries import Address, Client, Command, Server, block, entry

STARTED = Command("/opt/tool crib/bin/toolcrib", ("mcp", "--as", "heist/safecracker"))
OAUTH = Address("https://toolcrib.example.com/mcp")
VARIABLE = Address("https://toolcrib.example.com/mcp", "TOOLCRIB_TOKEN")
TEXT, TEXTS = {"type": "string"}, {"type": "array", "items": {"type": "string"}}
MAP = {"type": "object", "additionalProperties": TEXT}


def closed(required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [required], "additionalProperties": False}


def servers(holder: str, *kinds: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A closed configuration: Draft 7, as VS Code's own."""
    each = {"type": "object", "additionalProperties": {"oneOf": list(kinds)}}
    return {"$schema": "http://json-schema.org/draft-07/schema#", **closed(holder, **{holder: each}, **more)}


URL = {"type": "string", "format": "uri", "pattern": r"^https?:\/\/.+"}
SCHEMAS: dict[Client, dict[str, Any]] = {
    # The fields that each client's documentation names, and no others. VS Code: its schema of mcp.json
    # (contrib/mcp/common/mcpConfiguration.ts), which is closed like this one.
    Client.VSCODE: servers(
        "servers",
        closed("command", type={"enum": ["stdio"]}, command=TEXT, args=TEXTS, cwd=TEXT, env=MAP, envFile=TEXT, dev={}),
        closed("url", type={"enum": ["http", "sse"]}, url=URL, headers=MAP, dev={}),
        inputs={"type": "array"},
    ),
    Client.CLAUDE: servers(
        "mcpServers",
        closed("command", type={"enum": ["stdio"]}, command=TEXT, args=TEXTS, env=MAP),
        {**closed("url", type={"enum": ["http", "sse"]}, url=URL, headers=MAP, oauth={}), "required": ["type", "url"]},
    ),
    Client.CURSOR: servers(
        "mcpServers",
        closed("command", type={"enum": ["stdio"]}, command=TEXT, args=TEXTS, env=MAP, envFile=TEXT),
        closed("url", url=URL, headers=MAP, auth={}),
    ),
    Client.CODEX: servers(
        "mcp_servers",
        closed("command", command=TEXT, args=TEXTS, env=MAP, env_vars=TEXTS, cwd=TEXT, startup_timeout_sec={}),
        closed("url", url=URL, bearer_token_env_var=TEXT, http_headers=MAP, env_http_headers=MAP),
    ),
    Client.INSPECTOR: servers(
        "mcpServers",
        closed("command", type={"enum": ["stdio"]}, command=TEXT, args=TEXTS, env=MAP, cwd=TEXT),
        {**closed("url", type={"enum": ["sse", "streamable-http"]}, url=URL, headers=MAP), "required": ["type", "url"]},
    ),
}  # fmt: skip


def read(client: Client, text: str | bytes) -> Any:
    text = text if isinstance(text, str) else text.decode()
    return tomllib.loads(text) if client is Client.CODEX else json.loads(text)


@pytest.mark.parametrize("server", [STARTED, OAUTH, VARIABLE], ids=["stdio", "oauth", "variable"])
@pytest.mark.parametrize("client", Client)
def test_a_block_is_what_the_client_reads(client: Client, server: Server) -> None:
    if client is Client.INSPECTOR and server is VARIABLE:
        with pytest.raises(CliError, match="cannot reference an environment variable"):
            block(client, "toolcrib", server)
        return

    config = read(client, block(client, "toolcrib", server))

    jsonschema_rs.validator_for(SCHEMAS[client], validate_formats=True).validate(config)
    (found,) = config.values()
    assert found == {"toolcrib": entry(client, server)}


def test_the_schemas_refuse_what_a_client_would_not_understand() -> None:
    for client, schema in SCHEMAS.items():
        wrong = {next(iter(schema["properties"])): {"toolcrib": {"address": "https://x"}}}
        assert not jsonschema_rs.validator_for(schema).is_valid(wrong), client


# -------------------------------------------------------------------------------------------------- the command


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(["client", "config", *arguments])
    return int(ended.value.code or 0)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home folder and working folder, and a local mode that knows team/bot."""
    for name in (
        "TOOLCRIB_URL",
        "TOOLCRIB_DATA",
        "TOOLCRIB_CA_FILE",
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
        "CODEX_HOME",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    store = Store.open(tmp_path / "data")
    store.write_state("http://127.0.0.1:9", ["team/bot"])
    store.close()
    return tmp_path


def test_on_this_machine_the_client_starts_this_very_command_as_the_account(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("claude", "--as", "bot", "--data", str(home / "data"), "--direct") == 0

    out, err = capsys.readouterr()
    found = json.loads(out)["mcpServers"]["toolcrib"]
    assert found["command"] == str(Path(sys.executable).parent / "toolcrib")
    assert found["args"] == ["mcp", "--as", "team/bot", "--direct", "--data", str(home / "data")]
    assert "claude_desktop_config.json; --write puts it there" in err


@pytest.mark.parametrize("variable", ["XDG_DATA_HOME", "TOOLCRIB_DATA", None])
def test_a_data_folder_that_the_client_would_not_find_by_itself_is_in_the_command(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], variable: str | None
) -> None:
    """The client's environment lacks the variables of the shell that configures it, and its folder is another one."""
    folder = home / "elsewhere" / "toolcrib"
    if variable is None:  # the user's own, which the bridge finds
        folder = options.data_folder(None)
    else:
        monkeypatch.setenv(
            variable, str(folder.parent) if variable == "XDG_DATA_HOME" else "elsewhere/toolcrib"
        )
    folder.parent.mkdir(parents=True)
    (home / "data").rename(folder)

    assert run("claude", "--as", "bot") == 0

    found = json.loads(capsys.readouterr().out)["mcpServers"]["toolcrib"]["args"]
    assert found == ["mcp", "--as", "team/bot", *(["--data", str(folder)] if variable else [])]


def test_elsewhere_the_client_gets_the_address_and_logs_in_itself(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("vscode", "--url", "https://toolcrib.example.com/mcp/", "--name", "crib") == 0

    found = json.loads(capsys.readouterr().out)
    assert found == {"servers": {"crib": {"type": "http", "url": "https://toolcrib.example.com/mcp"}}}


def test_with_a_token_file_and_a_ca_the_client_starts_the_bridge(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "token").write_text("not-a-token.but-a.secret")
    (home / "ca.crt").touch()
    flags = ["--url", "https://toolcrib.example.com", "--token-file", "token", "--ca-file", "ca.crt"]
    assert run("codex", *flags) == 0

    out, err = capsys.readouterr()
    assert tomllib.loads(out)["mcp_servers"]["toolcrib"]["args"] == [
        "mcp", "--token-file", str(home / "token"), "--url", "https://toolcrib.example.com",
        "--ca-file", str(home / "ca.crt"),
    ]  # fmt: skip
    assert "secret" not in out + err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "no identity and no registry specified"),
        (("--as", "nobody"), "no account is called 'nobody'"),
        (("--as", "bot", "--token-file", "x"), "either --as or --token-file"),
        (("--as", "bot", "--token-env", "X"), "--token-env needs a client that connects by HTTP"),
        (("--url", "https://x", "--token-env", "Bearer abc"), "invalid variable name"),
        (("--url", "https://x", "--ca-file", "data/local.json"), "cannot specify a CA"),
        (("--url", "x"), "invalid address"),
        (("--url", "https://x", "--file", "y"), "--file needs --write"),
        (("--url", "https://x", "--name", "a.b"), "--name: invalid name"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(
    home: Path, arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("cursor", *arguments) == Exit.USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err


WHERE = {
    Client.CURSOR: ".cursor/mcp.json",
    Client.VSCODE: ".vscode/mcp.json",
    Client.CODEX: ".codex/config.toml",
    Client.INSPECTOR: "mcp.json",
    Client.CLAUDE: ".mcp.json",
}


@pytest.mark.parametrize("client", Client)
def test_write_makes_the_clients_file_that_only_its_owner_reads(
    home: Path, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        assert run(client, "--url", "https://toolcrib.example.com", "--write") == 0

    file = home / WHERE[client]
    assert read(client, file.read_bytes()) == read(client, block(client, "toolcrib", OAUTH))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(file.parent.glob("*.bak")) == []
    assert capsys.readouterr().out == f"Written to {file}.\n{file} has it already.\n"


def test_write_keeps_what_was_there_beside_it_and_a_link_a_link(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    real = home / "dotfiles.json"
    before = '{"theme": "dark", "mcpServers": {"other": {"command": "x"}}}'
    real.write_text(before)
    real.chmod(0o644)
    (home / "link.json").symlink_to(real)

    assert run("cursor", "--url", "https://toolcrib.example.com", "--write", "--file", "link.json") == 0

    (backup,) = home.glob("dotfiles.json.*.bak")
    assert backup.read_text() == before
    assert stat.S_IMODE(backup.stat().st_mode) == stat.S_IMODE(real.stat().st_mode) == 0o600
    assert (home / "link.json").is_symlink()
    config = json.loads(real.read_text())
    assert config["theme"] == "dark"
    assert set(config["mcpServers"]) == {"other", "toolcrib"}
    assert f"Before: {backup}" in capsys.readouterr().out


BROKEN = {
    Client.VSCODE: [
        b'{"servers": {}, // mine\n}', b"{", b"[]", b'{"servers": []}', b'{"a": 1, "a": 2}', b'{"a": NaN}', b"\xff",
        b"[" * 100_000,
    ],
    Client.CODEX: [
        b"a = ", b"mcp_servers = 1", b"\xff", b"mcp_servers = {other = {command = 'x'}}",
        b"mcp_servers.toolcrib = {command = 'x'}", b'a = """\n[mcp_servers.toolcrib]\n"""\n[mcp_servers.toolcrib]\n',
    ],
}  # fmt: skip


@pytest.mark.parametrize(("client", "before"), [(c, b) for c, all_ in BROKEN.items() for b in all_])
def test_a_file_that_cannot_be_kept_whole_is_left_as_it_is(
    home: Path, client: Client, before: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    file = home / WHERE[client]
    file.parent.mkdir()
    file.write_bytes(before)

    assert run(client, "--url", "https://toolcrib.example.com", "--write") == Exit.USAGE

    assert file.read_bytes() == before
    assert [f.name for f in file.parent.iterdir()] == [file.name]
    err = capsys.readouterr().err
    assert "was not changed" in err
    assert "paste the entry by hand" in err


def test_a_folder_that_cannot_be_written_is_a_usage_error(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "file").touch()
    flags = ("--url", "https://toolcrib.example.com", "--write", "--file", "file/mcp.json")
    assert run("cursor", *flags) == Exit.USAGE
    assert "cannot write file/mcp.json" in capsys.readouterr().err


# ---------------------------------------------------------------------------------------------------- the edits


def put(client: Client, before: str, server: Server = OAUTH) -> str:
    return with_entry(before.encode(), client, "toolcrib", entry(client, server), "the file").decode()


def test_json_keeps_its_order_its_indentation_and_its_line_ends() -> None:
    before = '{\r\n\t"z": {"ü": 1.5},\r\n\t"mcpServers": {\r\n\t\t"b": {}, "toolcrib": {"old": 1}, "a": {}\r\n\t}\r\n}\r\n'

    after = put(Client.CURSOR, before)

    assert "\n" not in after.replace("\r\n", "")
    assert '\r\n\t"z": {\r\n\t\t"ü": 1.5' in after
    assert list(json.loads(after)["mcpServers"].items()) == [
        ("b", {}),
        ("toolcrib", entry(Client.CURSOR, OAUTH)),
        ("a", {}),
    ]


CODEX = """\
# mine
model = "gpt"  # best

[mcp_servers.other]
command = "x"

[mcp_servers.toolcrib]
command = "old"
args = [
  "a",
]

[mcp_servers.toolcrib.env]
A = "1"

# about features
[features]
x = true
"""


def test_toml_keeps_its_comments_and_loses_the_former_table_whole() -> None:
    after = put(Client.CODEX, CODEX, STARTED)

    former = CODEX[CODEX.index("[mcp_servers.toolcrib]") : CODEX.index("\n# about")]
    assert after == CODEX.replace(former, block(Client.CODEX, "toolcrib", STARTED))


@pytest.mark.parametrize(
    "before", ["", "# mine", "a = 1", "a = 1\n", "[mcp_servers.toolcrib-2]\ncommand = 'x'\n"]
)
def test_a_new_toml_table_stands_at_the_end(before: str) -> None:
    after = put(Client.CODEX, before)

    assert after.startswith(before)
    assert after.endswith(block(Client.CODEX, "toolcrib", OAUTH))
    expected = tomllib.loads(before)
    expected.setdefault("mcp_servers", {})["toolcrib"] = entry(Client.CODEX, OAUTH)
    assert tomllib.loads(after) == expected


@pytest.mark.parametrize("name", ["plain", "in quotes", "with blanks"])
def test_a_toml_table_is_found_however_its_name_is_written(name: str) -> None:
    header = {
        "plain": "[mcp_servers.toolcrib]",
        "in quotes": "[mcp_servers.'toolcrib']",
        "with blanks": " [ mcp_servers . toolcrib ]",
    }[name]
    after = put(Client.CODEX, f'{header}\ncommand = "old"\n')

    assert tomllib.loads(after) == {"mcp_servers": {"toolcrib": entry(Client.CODEX, OAUTH)}}


@pytest.mark.parametrize(
    ("client", "make"),
    [(Client.CODEX, lambda: block(Client.CODEX, "toolcrib", OAUTH)), (Client.CURSOR, lambda: block(Client.CURSOR, "toolcrib", OAUTH))],
)  # fmt: skip
def test_an_entry_that_is_there_changes_nothing(client: Client, make: Callable[[], str]) -> None:
    assert put(client, make()) == make()


def test_the_blocks_of_the_guide_are_what_the_clients_read() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "guides" / "connect-a-client.md").read_text()
    first, inputs = re.findall(r"```json\n(.*?)```", guide, re.DOTALL)

    server = Command("/opt/toolcrib/bin/toolcrib", ("mcp", "--as", "heist/safecracker"))
    assert json.loads(first) == json.loads(block(Client.CLAUDE, "toolcrib", server))
    jsonschema_rs.validator_for(SCHEMAS[Client.VSCODE]).validate(json.loads(inputs))
