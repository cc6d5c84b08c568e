"""`toolcrib import mcp`: what other programs' files become, what is said of the rest, and what is never printed."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from toolcrib import resources
from toolcrib_cli import main as cli
from toolcrib_cli.errors import Exit
from toolcrib_cli.imports import json_files, manifests, servers

SECRET = "ghp-0123456789"


@dataclass(frozen=True)
class Ended:
    """How a run ended."""

    code: int
    out: str
    err: str

    @property
    def documents(self) -> list[dict[str, Any]]:
        return [d for d in yaml.safe_load_all(self.out) if d is not None]

    def one(self, kind: str, name: str) -> dict[str, Any]:
        (found,) = (d for d in self.documents if (d["kind"], d["metadata"]["name"]) == (kind, name))
        return dict(found)


Import = Callable[..., Ended]


@pytest.fixture
def imported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Import:
    """Runs the command over a document, or over text as it stands."""

    def run(source: Any, *options: str) -> Ended:
        file = tmp_path / "source.json"
        file.write_text(source if isinstance(source, str) else json.dumps(source))
        return _run(capsys, str(file), *options)

    return run


def _run(capsys: pytest.CaptureFixture[str], *arguments: str) -> Ended:
    with pytest.raises(SystemExit) as ended:
        cli.main(["import", "mcp", *arguments])
    said = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return Ended(ended.value.code, said.out, said.err)


def refused(ended: Ended, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What `toolcrib validate` says of the output if it refuses any of it; else nothing."""
    file = tmp_path / "made.yaml"
    file.write_text(ended.out)
    with pytest.raises(SystemExit) as validated:
        cli.main(["validate", str(file)])
    said = capsys.readouterr()
    return "" if validated.value.code == Exit.OK else said.out + said.err


@pytest.mark.parametrize("holder", ["mcpServers", "servers"])
def test_a_server_of_a_clients_configuration_is_a_toolserver_with_a_secret_to_fill_in(
    holder: str, imported: Import, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = {
        "type": "http",
        "url": "https://mcp.example.com:8443/mcp",
        "headers": {"Authorization": f"Bearer {SECRET}"},
    }

    made = imported({holder: {"GitHub": entry}}, "-n", "team-a")

    server = made.one("ToolServer", "github")
    assert server["metadata"]["namespace"] == "team-a"
    assert server["spec"] == {
        "mcp": {
            "url": "https://mcp.example.com:8443/mcp",
            "auth": {"type": "Bearer", "secretKeyRef": {"name": "github-credential", "key": "credential"}},
        },
        "defaults": {"scopes": ["github:use"]},
    }
    secret = made.one("Secret", "github-credential")
    assert secret["metadata"]["labels"] == {"toolcrib.dev/backend-credential": "true"}
    assert secret["metadata"]["annotations"] == {"toolcrib.dev/hosts": "https://mcp.example.com:8443"}
    assert secret["stringData"] == {"credential": ""}
    assert made.code == Exit.OK
    assert refused(made, tmp_path, capsys) == ""


@pytest.mark.parametrize(
    ("headers", "auth"),
    [
        ({"Authorization": f"Basic {SECRET}"}, {"type": "Basic"}),
        ({"authorization": SECRET}, {"type": "Header", "header": "authorization"}),
        ({"X-Api-Key": SECRET, "Accept": "x"}, {"type": "Header", "header": "X-Api-Key"}),
        ({"X-One": SECRET, "Authorization": "Bearer ${TOKEN}"}, {"type": "Bearer"}),
    ],
)
def test_the_way_a_server_is_authenticated_to_is_kept(
    headers: dict[str, str], auth: dict[str, str], imported: Import
) -> None:
    made = imported({"mcpServers": {"one": {"url": "https://a.example/mcp", "headers": headers}}})

    kept = made.one("ToolServer", "one")["spec"]["mcp"]["auth"]
    assert {k: v for k, v in kept.items() if k != "secretKeyRef"} == auth
    assert ("X-One cannot be carried over" in made.out) == ("X-One" in headers)


def test_no_value_that_may_be_a_secret_is_printed(imported: Import) -> None:
    made = imported(
        {
            "mcpServers": {
                "a": {
                    "url": f"https://me:{SECRET}@a.example/mcp?key={SECRET}#{SECRET}",
                    "headers": {"X-A": SECRET},
                },
                "b": {"command": "npx", "args": ["server", f"--token={SECRET}"], "env": {"KEY": SECRET}},
                "c": {"url": f"ftp://{SECRET}"},
                "d": {"url": f"https://${{{SECRET}}}:{SECRET}", "type": SECRET},
            },
            "inputs": [SECRET],
        }
    )

    assert "ghp" not in (made.out + made.err).replace(f"${{{SECRET}}}", "")
    assert made.one("ToolServer", "a")["spec"]["mcp"]["url"] == "https://a.example/mcp"
    assert "user in its address is left out" in made.out
    assert "follows ? in its address is left out" in made.out


def test_a_program_becomes_a_toolserver_that_runs_locally_with_its_variables_in_a_secret(
    imported: Import,
) -> None:
    args = [
        "-y",
        "@scope/server",
        "--api-key",
        SECRET,
        f"--url=https://{SECRET}@db.example",
        "--verbose",
        f"dsn=x password={SECRET}",
    ]
    made = imported(
        {"mcpServers": {"git hub": {"command": "npx", "args": args, "env": {"KEY": SECRET, "a b": SECRET}}}}
    )

    mcp = made.one("ToolServer", "git-hub")["spec"]["mcp"]
    assert mcp["command"] == [
        "npx",
        "-y",
        "@scope/server",
        "--api-key",
        "FILL-IN",
        "FILL-IN",
        "--verbose",
        "FILL-IN",
    ]
    assert mcp["env"] == [{"name": "KEY", "secretKeyRef": {"name": "git-hub-env", "key": "KEY"}}]
    assert made.one("Secret", "git-hub-env")["stringData"] == {"KEY": ""}
    assert "toolcrib up --allow-stdio" in made.out
    assert SECRET not in made.out + made.err


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"command": "npx", "args": [7]}, "not a program with at most 63 arguments"),
        ({"url": "https://a.example/sse", "type": "sse"}, "HTTP+SSE"),
        ({"url": "https://${input:host}/mcp"}, "variable ${input:host}"),
        ({"url": "https://a.example/a b"}, "characters that a URL must encode"),
        ({"url": "file:///etc/passwd"}, "not an http or https URL"),
        ({"url": "https://[::1/mcp"}, "not an http or https URL"),
        ({"url": 7}, "not a string"),
        ({}, "neither url nor command"),
        ("x", "not an object"),
    ],
)
def test_a_server_that_no_toolserver_can_describe_is_left_out_with_the_reason(
    entry: Any, why: str, imported: Import
) -> None:
    beside = imported({"mcpServers": {"odd": entry, "good": {"url": "https://a.example/mcp"}}})
    alone = imported({"mcpServers": {"odd": entry}})

    assert [d["metadata"]["name"] for d in beside.documents] == ["good"]
    assert why in beside.out
    assert (beside.code, alone.code) == (Exit.OK, Exit.FAILED)
    assert "1 server" in beside.err


def test_a_configuration_with_comments_and_trailing_commas_is_read(imported: Import) -> None:
    made = imported('{// a\n"servers": {"a": {"url": "https://a.example//mcp", /* b */ }, // c\n },\n}')

    assert made.one("ToolServer", "a")["spec"]["mcp"]["url"] == "https://a.example//mcp"


_MIB = 1 << 20


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("/* " * (_MIB // 3), "line 1, column 1: Expecting value"),
        ('{"a": 1 /* \n' + "/* " * (_MIB // 3), "line 1, column 9: Expecting ',' delimiter"),
        ("[/*/", "line 1, column 2: Expecting value"),
        (r'["a' + r"\"" * (_MIB // 2), "line 1, column 2: Unterminated string starting at"),
        ('["\\', "line 1, column 2: Unterminated string starting at"),
        ("[1" + ", " * (_MIB // 2), "line 1, column 5: Expecting value"),
        (
            "{" + "".join(f'"{n:05}":0,' for n in range(100_000)) + '"99999":0}',
            "key '99999' is given twice in one object: remove one",
        ),
    ],
    ids=["comment", "comments", "slash", "string", "backslash", "commas", "keys"],
)
def test_a_mebibyte_of_what_has_no_end_is_refused_after_one_pass(text: str, said: str) -> None:
    """With another pass for each beginning it does not return within hours."""
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        json_files.read(text)


@pytest.mark.parametrize(
    ("path", "noted"),
    [
        ("/mcp", False),
        ("/api/v2/mcp-servers/kubernetes-cluster-v1beta1", False),
        ("/streamable-http-for-everybody-2025", False),
        ("/s/kq3Vd81LzPw0aXtM/mcp", True),
        ("/s/3f0c9a5e-77b1-4c2d-9e8a-51d2c3b4a596", True),
        ("/hooks/a1B2-c3D4_e5F6-g7H8", True),
    ],
)
def test_an_address_whose_path_may_hold_a_secret_is_noted(path: str, noted: bool, imported: Import) -> None:
    made = imported({"mcpServers": {"a": {"url": f"https://a.example{path}"}}})

    assert made.one("ToolServer", "a")["spec"]["mcp"]["url"] == f"https://a.example{path}"
    assert ("# The path of its address may hold a secret. Everyone who can read" in made.out) is noted


@given(
    st.recursive(st.none() | st.booleans() | st.text(), lambda v: st.lists(v) | st.dictionaries(st.text(), v))
)
def test_plain_json_is_read_as_it_is(value: Any) -> None:
    assert json_files.read(json.dumps(value)) == value
    assert json_files.read(json.dumps(value, ensure_ascii=False, indent=1)) == value


@given(st.lists(st.text(min_size=1), max_size=6, unique=True))
@example(["expect"])
def test_whatever_servers_are_called_each_has_a_manifest_with_a_name_of_its_own(names: list[str]) -> None:
    found = [
        *servers.of_clients(
            {name: {"url": "https://a.example/mcp", "headers": {name: name}} for name in names}
        )
    ]

    documents = [d for text in manifests.of_servers(found, "team-a") for d in yaml.safe_load_all(text)]

    made = [resources.parse(d, strict=True) for d in documents if d["kind"] == "ToolServer"]
    assert len({m.metadata.name for m in made}) == len(names)
    assert all(d["kind"] in ("Secret", "ToolServer") for d in documents)


def test_a_server_called_registry_gets_no_power_of_the_registry_as_its_scope(imported: Import) -> None:
    made = imported({"servers": {"registry": {"url": "https://a.example/mcp"}}})

    assert made.one("ToolServer", "registry")["spec"]["defaults"] == {"scopes": ["mcp-registry:use"]}


def test_an_address_becomes_a_toolserver_named_after_its_host_or_as_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    hosts = {
        "https://mcp.linear.app/mcp": "linear", "https://api.githubcopilot.com/mcp/": "githubcopilot",
        "http://127.0.0.1:9000/mcp": "127-0-0-1", "http://files:80/mcp": "files",
    }  # fmt: skip
    for url, name in hosts.items():
        made = _run(capsys, url)
        assert made.one("ToolServer", name)["spec"]["mcp"]["url"] == url
    named = _run(capsys, "https://mcp.linear.app/mcp", "--name", "tickets", "--scope", "tickets:read")
    assert named.one("ToolServer", "tickets")["spec"]["defaults"] == {"scopes": ["tickets:read"]}


SERVER_JSON = {
    "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
    "name": "io.github.example/tickets",
    "description": "Tickets",
    "version": "1.0.0",
    "remotes": [
        {"type": "sse", "url": "https://old.example/sse"},
        {
            "type": "streamable-http",
            "url": "https://{tenant}.example/{region}/mcp",
            "variables": {"tenant": {"isRequired": True}, "region": {"default": "eu"}},
            "headers": [{"name": "X-Key", "isSecret": True, "isRequired": True}],
        },
    ],
}


def test_a_remote_of_server_json_gets_its_variables_from_the_command_line_or_its_defaults(
    imported: Import,
) -> None:
    lacking = imported(SERVER_JSON)
    made = imported(SERVER_JSON, "--set", "tenant=acme")

    assert lacking.code == Exit.FAILED
    assert "needs tenant; add --set tenant=VALUE" in lacking.out
    mcp = made.one("ToolServer", "tickets")["spec"]["mcp"]
    assert mcp["url"] == "https://acme.example/eu/mcp"
    assert (mcp["auth"]["type"], mcp["auth"]["header"]) == ("Header", "X-Key")


def test_a_server_json_without_a_streamable_remote_says_what_it_has(imported: Import) -> None:
    sse = imported({**SERVER_JSON, "remotes": SERVER_JSON["remotes"][:1]})
    packages = imported({"name": "a/b", "packages": [{}]})

    assert "its remotes are sse" in sse.out
    assert "only packages to start" in packages.out
    assert {sse.code, packages.code} == {Exit.FAILED}


ALLOWLISTS = {
    "Planner": {
        "allow": ["github:*", "web_search"],
        "deny": ["dangerous_tool"],
        "servers": ["github", "web"],
    },
    "guard": {"deny": ["rm_*"]},
    "nobody": {"allow": []},
    "odd": {"allow": ["a b"]},
}


def test_each_agent_of_an_allowlist_gets_one_binding_whose_scopes_must_be_chosen(
    imported: Import, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = imported(ALLOWLISTS)
    chosen = imported(ALLOWLISTS, "--scope", "github:use")

    assert made.one("AgentScopeBinding", "planner")["spec"] == {
        "subjects": [{"kind": "ServiceAccount", "name": "planner"}],
        "scopes": [],
        "tools": {"allow": ["github:*", "web_search"], "deny": ["dangerous_tool"]},
        "servers": ["github", "web"],
    }
    assert "choose: the scopes" in made.out
    assert made.one("AgentScopeBinding", "guard")["spec"]["tools"] == {"deny": ["rm_*"]}
    assert "scopes" not in made.one("AgentScopeBinding", "guard")["spec"]
    assert "nobody: allow is empty" in made.out
    assert "'a b'" in made.out
    assert len(made.documents) == 2
    assert "scopes" in refused(made, tmp_path, capsys), "nothing is granted before somebody chose"
    assert refused(chosen, tmp_path, capsys) == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ("[1]", "does not hold a JSON object"),
        ('{"a": 1', "line 1"),
        ('{"mcpServers": {"a": {}, "a": {}}}', "is given twice"),
        ("[" * 100_000, "nested too deeply"),
        ('{"other": {"x": 1}}', "holds no MCP servers"),
        ('{"mcpServers": {}}', "names no servers"),
        (" " * (1 << 20) + "{}", "larger than 1 MiB"),
    ],
    ids=["empty", "list", "cut", "twice", "deep", "other", "none", "large"],
)
def test_a_file_that_is_something_else_is_refused_with_the_reason(
    text: str, said: str, imported: Import
) -> None:
    ended = imported(text)

    assert ended.code in (Exit.USAGE, Exit.FAILED)
    assert said in ended.err
    assert ended.out == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ("https://a.example/mcp", "-n", "Team_A"),
        ("https://a.example/mcp", "-n", "a\n"),
        ("https://a.example/mcp", "--scope", "a b"),
        ("https://a.example/mcp", "--scope", "registry:write"),
        ("https://a.example/mcp", "--set", "x"),
        ("nowhere.json",),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    ended = _run(capsys, *arguments)

    assert (ended.code, ended.out) == (Exit.USAGE, "")


def test_standard_input_is_read(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.dumps({"mcpServers": {"a": {"url": "https://a.example/mcp"}}})
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    assert _run(capsys, "-").one("ToolServer", "a")["spec"]["mcp"]["url"] == "https://a.example/mcp"
