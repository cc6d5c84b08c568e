"""The command line: exit codes, formats, help, and other people's text made safe."""

import contextlib
import fcntl
import io
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import jwt
import pytest
import yaml
from rich.cells import cell_len
from rich.console import Console

from toolcrib.resources import admission, crd
from toolcrib_cli import main as cli
from toolcrib_cli import output
from toolcrib_cli.client import RegistryClient
from toolcrib_cli.commands import call_arguments
from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.local import accounts
from toolcrib_cli.output import Format

HEIST = Path(__file__).parents[3] / "examples" / "heist"


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    return int(ended.value.code or 0)


def test_valid_manifests_end_with_zero_and_a_count(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("validate", str(HEIST)) == 0
    assert "11 object(s) in 10 file(s): all valid" in capsys.readouterr().out


def test_approvals_without_a_local_mode_and_without_a_cluster_say_what_either_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))

    assert run("approvals", "list", "--data", str(tmp_path)) == Exit.USAGE

    told = capsys.readouterr().err
    assert f"no local mode runs in {tmp_path}" in told.replace("\n", "")
    assert "toolcrib up" in told
    assert "--kubeconfig" in told


def test_a_bad_manifest_ends_with_one_and_names_file_line_field_and_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(
        "apiVersion: toolcrib.dev/v1alpha1\nkind: Tool\nmetadata: {name: a}\nspec:\n  scopes: []\n  backend: {none: {}}\n"
    )
    assert run("validate", str(file)) == 1
    shown = capsys.readouterr().out
    assert f"{file}:5: spec.scopes:" in shown
    assert "name at least one" in shown
    assert run("validate", str(file), "-o", "json") == 1
    problem = json.loads(capsys.readouterr().out)["problems"][0]
    assert (problem["line"], problem["field"], problem["refusedAtApply"]) == (5, "spec.scopes", True)
    assert run("validate", str(file), "-o", "yaml") == 1
    assert yaml.safe_load(capsys.readouterr().out)["problems"][0]["field"] == "spec.scopes"


def test_tools_that_a_search_finds_badly_are_warnings_and_fail_where_it_is_strict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "weak.yaml"
    named = "apiVersion: toolcrib.dev/v1alpha1\nkind: Tool\nmetadata: {name: NAME}\nspec:\n  scopes: [a]\n  backend: {none: {}}\n"
    said = "  description: Opens the door of the vault\n"
    file.write_text(
        "---\n".join((named.replace("NAME", "front") + said, named.replace("NAME", "tool1") + said))
    )
    assert run("validate", str(file)) == 0
    shown = capsys.readouterr().out
    assert f"warning: {file}:7: spec.description: DuplicateDescription: Tool default/tool1" in shown
    assert "2 object(s) in 1 file(s): all valid, 3 warning(s)" in shown
    assert run("validate", "--strict", str(file)) == 1
    capsys.readouterr()
    assert run("validate", "--strict", str(file), "-o", "json") == 1
    told = json.loads(capsys.readouterr().out)
    assert told["problems"] == []
    assert [(w["object"], w["reason"], w["field"]) for w in told["warnings"]] == [
        ("Tool default/front", "DuplicateDescription", "spec.description"),
        ("Tool default/tool1", "DuplicateDescription", "spec.description"),
        ("Tool default/tool1", "NameSaysNothing", "spec.name"),
    ]
    assert all(w["hint"] for w in told["warnings"])


def test_hidden_text_is_a_problem_with_its_place_and_code_point_or_a_warning_where_that_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (file := tmp_path / "tool.yaml").write_text(
        "apiVersion: toolcrib.dev/v1alpha1\nkind: Tool\nmetadata: {name: read-file}\nspec:\n  scopes: [x]\n"
        "  backend: {none: {}}\n  description: Reads a file of the project as text.\n  inputSchema:\n"
        '    type: object\n    $comment: "a\\u200bb"\n'
    )
    assert run("validate", str(file)) == 1
    shown = capsys.readouterr().out
    assert (
        f"{file}:8: spec.inputSchema/$comment: Accepted=False/HiddenText: hidden U+200B ZERO WIDTH SPACE"
        in shown
    )
    assert run("validate", str(file), "--hidden-text", "warn") == 0
    assert "warning: " in (warned := capsys.readouterr().out)
    assert "HiddenText: hidden U+200B" in warned


def test_bindings_that_never_grant_are_warnings_and_fail_where_it_is_strict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = "apiVersion: toolcrib.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:\n"
    who = '  subjects: [{kind: ServiceAccount, namespace: a, name: b}]\n  scopes: ["x:use"]\n'
    (file := tmp_path / "bindings.yaml").write_text(
        head.format(kind="AgentScopeBinding", name="old")
        + who
        + '  expiresAt: "2020-01-01T00:00:00Z"\n  tools: {deny: [never]}\n---\n'
        + head.format(kind="ClusterAgentScopeBinding", name="shadowed")
        + who
        + '  namespaces: [a]\n  tools: {allow: [delete_x], deny: ["delete_*"], denyScopes: ["x:use"]}\n'
    )
    assert run("validate", str(file)) == 0
    capsys.readouterr()
    assert run("validate", "--strict", str(file), "-o", "json") == 1
    told = json.loads(capsys.readouterr().out)["warnings"]
    assert [(w["object"], w["reason"], w["field"]) for w in told] == [
        ("AgentScopeBinding default/old", "Expired", "spec.expiresAt"),
        ("AgentScopeBinding default/old", "ExpiredAtApply", "spec.expiresAt"),
        ("ClusterAgentScopeBinding shadowed", "ScopeShadowed", "spec.scopes[0]"),
        ("ClusterAgentScopeBinding shadowed", "AllowShadowed", "spec.tools.allow[0]"),
    ]


@pytest.mark.parametrize("folder", ["heist", "limits", "access"])
def test_our_own_examples_are_found_well(folder: str) -> None:
    assert run("validate", "--strict", str(HEIST.parent / folder)) == 0


@pytest.mark.long
def test_the_catalog_has_other_peoples_words_of_which_some_are_weak(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # real servers' tools, word for word: what is weak there is what makes it a good example of real data
    assert run("validate", "--strict", str(HEIST.parent / "catalog"), "-o", "json") == 1
    told = json.loads(capsys.readouterr().out)
    assert told["problems"] == []
    weak = {w["object"] for w in told["warnings"]}
    assert 100 < len(weak) < 530, "a fifth of a real catalog at most: a rule that finds more is of no use"


def test_validating_nothing_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("validate", str(tmp_path)) == Exit.USAGE
    assert "no manifest files" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["up", "--port", "70000"], ["validate"], ["tools", "--wrong"]]
)
def test_a_wrong_command_line_ends_with_two(arguments: list[str]) -> None:
    assert run(*arguments) == Exit.USAGE


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "Specify either --issuer or --unverified"),
        (["--issuer", "https://a.example", "--unverified"], "Specify either --issuer or --unverified"),
        (["--issuer", "a.example"], "--issuer and --jwks-url: Invalid JWKS URI scheme"),
        (["--issuer", "https://a.example", "--jwks-url", "file:///etc/x"], "Invalid JWKS URI scheme"),
        (
            ["--issuer", "https://a.example", "--ca-file", "/nowhere"],
            "--ca-file /nowhere cannot be used: No such file",
        ),
    ],
)
def test_the_example_tools_start_only_with_a_registry_or_openly_without_one(
    flags: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("example-tools", *flags) == Exit.USAGE
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        "up",
        "token",
        "tools",
        "search",
        "describe",
        "load",
        "call",
        "validate",
        "crds",
        "version",
        "example-tools",
    ],
)
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command, "--help") == 0
    assert "Usage" in capsys.readouterr().out


def test_crds_prints_what_the_cluster_gets(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("crds") == 0
    wanted = [*crd.definitions().values(), *admission.manifests()]
    assert list(yaml.safe_load_all(capsys.readouterr().out)) == wanted


def test_without_an_identity_a_client_command_says_how_to_give_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TOOLCRIB_TOKEN", raising=False)
    assert run("tools") == Exit.USAGE
    assert "--as NAME" in capsys.readouterr().err


def test_control_bidi_and_zero_width_characters_are_shown_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "a\x1b[31mred\u202egnp.exe\u200b\r\nnext"
    output.table(("name",), [(hostile,)])
    output.line(hostile)
    shown = capsys.readouterr().out
    assert not any(c in shown for c in "\x1b\u202e\u200b\r")
    assert shown.count("\\x1b[31mred\\u202egnp.exe\\u200b\\x0d\\x0anext") == 2


@pytest.mark.parametrize("columns", [20, 80, 100, 110, 120, 132, 160, 200, 300])
def test_a_terminal_of_any_width_shows_every_name_whole_and_every_column(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("heist/database-query", "database_query", "yes", "AgentScopeBinding heist/hacker-\u6f22\u5b57")
    rule = "spec.scopes[2] of the binding grants the scope it needs, which is what the tool asks for"
    monkeypatch.setenv("TERM", "xterm")
    shown = io.StringIO()
    terminal = Console(file=shown, force_terminal=True, width=columns, color_system=None, highlight=False)
    output.table(("tool", "name", "allowed", "by", "rule"), [(*names, rule), (*names, "short")], to=terminal)

    lines = shown.getvalue().splitlines()
    assert lines[0].split() == ["TOOL", "NAME", "ALLOWED", "BY", "RULE"]
    for name in names:
        assert sum(name in line for line in lines) == 2, f"{name} is whole in both rows"
    at = lines[0].index("RULE")
    # the two wide characters take two cells each
    told = " ".join(part for line in lines[1:] if (part := line[at - 2 if "heist" in line else at :].strip()))
    assert told == f"{rule} short"
    folded = len(lines) > 3
    assert not folded or max(map(cell_len, lines)) <= columns
    assert folded == (113 < columns < 180), "no narrower than 30, and on one line where there is room"


def test_a_command_on_a_narrow_terminal_names_the_deciding_rule() -> None:
    told = on_terminal(80, "access", "what-can", "heist/hacker", "--manifests", str(HEIST))

    head = told.splitlines()[0]
    assert head.split() == ["TOOL", "NAME", "ALLOWED", "REASON", "BY", "GENERATION", "RULE"]
    row = next(line for line in told.splitlines() if line.startswith("heist/file-reader "))
    assert "AgentScopeBinding heist/hacker " in row
    assert row[head.index("RULE") :].rstrip() == "grants file_reader:use"


def on_terminal(columns: int, *arguments: str) -> str:
    """What a person with a terminal of so many columns is shown."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    argv = [sys.executable, "-m", "toolcrib_cli", *arguments]
    told = bytearray()
    with subprocess.Popen(argv, stdin=theirs, stdout=theirs, env={**os.environ, "TERM": "dumb"}) as command:
        os.close(theirs)
        with open(ours, "rb", buffering=0) as screen, contextlib.suppress(OSError):  # EIO is its end
            while part := screen.read(65536):
                told += part
    assert command.returncode == 0
    return told.decode()


@pytest.mark.parametrize("form", [Format.JSON, Format.YAML])
def test_machine_formats_round_trip_hostile_text(form: Format, capsys: pytest.CaptureFixture[str]) -> None:
    value = {"description": "a\x1b[0m\u202e", "n": [1, 2.5, None, True]}
    output.data(value, form)
    text = capsys.readouterr().out
    assert not any(c in text for c in "\x1b\u202e")
    assert (json.loads(text) if form is Format.JSON else yaml.safe_load(text)) == value


@pytest.mark.parametrize(
    ("pairs", "text", "expected"),
    [
        (["a=1", "b=true", "c=x y", 'd={"k": [1]}'], None, {"a": 1, "b": True, "c": "x y", "d": {"k": [1]}}),
        (["expression=6*7", "empty="], None, {"expression": "6*7", "empty": ""}),
        (["b=2"], '{"a": "1"}', {"a": "1", "b": 2}),
    ],
)
def test_arguments_are_json_where_they_can_be_and_text_otherwise(
    pairs: list[str], text: str | None, expected: object
) -> None:
    assert call_arguments.read(pairs, text) == expected


@pytest.mark.parametrize(
    ("pairs", "text"), [(["novalue"], None), (["=x"], None), (["a=1", "a=2"], None), ([], "[1]"), ([], "{")]
)
def test_arguments_that_are_none_are_refused(pairs: list[str], text: str | None) -> None:
    with pytest.raises(CliError) as refused:
        call_arguments.read(pairs, text)
    assert refused.value.code is Exit.USAGE


def test_the_version_is_an_option_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out.startswith("toolcrib ")


def test_lines_are_never_broken_so_that_commands_can_be_copied(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    command = "curl -s -H 'Authorization: Bearer x' " + "http://127.0.0.1:8765/" * 5
    output.line(command)
    assert command in capsys.readouterr().out


def test_manifests_are_read_from_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (HEIST / "30-tool-calculator.yaml").read_text()
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert run("validate", "-") == 0
    assert "1 object(s)" in capsys.readouterr().out
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert run("validate", "-") == Exit.USAGE


def test_a_file_that_is_not_there_is_a_problem_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("validate", "no-such-file.yaml") == Exit.FAILED
    assert "no-such-file.yaml: cannot be read" in capsys.readouterr().out


def test_a_bare_name_that_two_accounts_have_is_refused_with_both(tmp_path: Path) -> None:
    (tmp_path / "local.json").write_text(
        json.dumps({"url": "http://127.0.0.1:1", "accounts": ["a/bot", "b/bot", "a/x"]})
    )
    assert accounts.find(tmp_path, "x") == ("a", "x")
    assert accounts.find(tmp_path, "b/bot") == ("b", "bot")
    with pytest.raises(CliError, match="a/bot, b/bot"):
        accounts.find(tmp_path, "bot")


def test_a_token_lives_as_long_as_it_was_asked_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tmp_path.chmod(0o700)
    for asked, seconds in (("90s", 90), ("7d", 7 * 86_400)):
        assert run("token", "team/bot", "--ttl", asked, "--data", str(tmp_path)) == 0
        claims = jwt.decode(capsys.readouterr().out.strip(), options={"verify_signature": False})
        assert claims["exp"] - claims["iat"] == seconds
    for wrong in ("soon", "d", "-7d", "0d"):
        assert run("token", "team/bot", "--ttl", wrong, "--data", str(tmp_path)) == Exit.USAGE


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("issue",), "No tool found. --min-score 0 shows the nearest tools.\n"),
        (
            ("issue", "--min-score", "0.5"),
            "No tool found. Hits below --min-score 0.5 are omitted: lower it, or omit it.\n",
        ),
        (
            ("issue", "--server", "nope"),
            "No tool found. --min-score 0 shows the nearest tools, if any tool matches the filters.\n",
        ),
        (
            ("issue", "--tag", "nope", "--min-score", "0"),
            "No tool found. Perhaps no tool matches the filters.\n",
        ),
        (("--tag", "nope"), "No tool matches the filters.\n"),
    ],
)
def test_a_search_without_hits_says_what_would_bring_some(
    arguments: tuple[str, ...],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[dict[str, object]] = []

    def post(self: RegistryClient, path: str, body: dict[str, object]) -> object:
        asked.append(body)
        return {"tools": [], "search_mode": "hybrid"}

    monkeypatch.setattr(RegistryClient, "post", post)
    monkeypatch.setenv("TOOLCRIB_TOKEN", "a.b.c")

    assert run("search", *arguments, "--url", "http://127.0.0.1:9") == 0
    assert capsys.readouterr().err == said
    assert asked[0]["query"] == (arguments[0] if arguments[0] == "issue" else "")


def test_a_search_for_nothing_at_all_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("search", "--url", "http://127.0.0.1:9") == 2
    assert "or add --tag" in capsys.readouterr().err
