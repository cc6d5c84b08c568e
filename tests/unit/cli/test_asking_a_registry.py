"""What a client command says of tokens, addresses and registries that are not as they should be."""

import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from stub_server import Answer, answering
from toolcrib.telemetry import logs
from toolcrib_cli import cluster, options
from toolcrib_cli import main as cli
from toolcrib_cli.errors import CliError, Exit


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(list(arguments))
    return int(ended.value.code or 0)


@contextlib.contextmanager
def serving(status: int, body: bytes) -> Iterator[str]:
    """The address of a server that answers every request like this."""

    with answering(lambda _: Answer(body, status, {})) as port:
        yield f"http://127.0.0.1:{port}"


def registry(status: int, **problem: object) -> contextlib.AbstractContextManager[str]:
    """The address of a server that answers every request with this problem document."""
    return serving(status, json.dumps(problem).encode())


@pytest.mark.parametrize(
    ("held", "said"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        ("a.b.\u00e9".encode(), "does not hold a token"),
        (b"\xff\x00\xfe\x81", "does not hold a token"),
        (b"a.b.c\nd.e.f\n", "does not hold a token"),
        (b"Bearer a.b.c", "does not hold a token"),
    ],
)
@pytest.mark.parametrize(
    "command", [("tools", "--url"), ("access", "what-can", "heist/hacker", "--registry")], ids=" ".join
)
def test_a_file_without_a_token_is_a_usage_error_and_nobody_is_asked(
    command: tuple[str, ...], held: bytes, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "token"
    file.write_bytes(held)

    assert run(*command, "http://127.0.0.1:9", "--token-file", str(file)) == Exit.USAGE
    assert capsys.readouterr().err.startswith(f"error: the token file {file} {said}\n")


@pytest.mark.parametrize(
    ("held", "said"),
    [(" ", "is empty"), ("\u00e9", "does not hold a token"), ("a b", "does not hold a token")],
)
def test_a_variable_without_a_token_is_a_usage_error(
    held: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TOOLCRIB_TOKEN", held)

    assert run("tools", "--url", "http://127.0.0.1:9") == Exit.USAGE
    assert capsys.readouterr().err.startswith(f"error: TOOLCRIB_TOKEN {said}\n")


def test_white_space_around_a_token_is_no_part_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_bytes(b"\n a.b.c~ \r\n")
    monkeypatch.setenv("TOOLCRIB_TOKEN", "a.b.c\n")

    assert options.bearer(None, tmp_path / "token", None) == "a.b.c~"
    assert options.bearer(None, None, None) == "a.b.c"


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1:8765", "ftp://x", "//x", "http://[::1", "http://x:port", "http://\u00e9..x", "http://a..b", "http://.a",
        f"http://{'a' * 64}.b", "http://xn--.b", "http://127.0.0.1:9/?a=b", "http://127.0.0.1:9/?", "http://127.0.0.1:9/#a",
    ],
)  # fmt: skip
def test_what_is_no_address_is_a_usage_error_and_not_a_registry_that_is_away(
    address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TOOLCRIB_TOKEN", "a.b.c")

    assert run("tools", "--url", address) == Exit.USAGE
    said, hint = capsys.readouterr().err.splitlines()
    assert said.startswith(f"error: invalid address: {address} (")
    assert hint == "  hint: specify http://HOST:PORT or https://HOST"


def test_credentials_in_an_address_are_refused_and_not_repeated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TOOLCRIB_TOKEN", "a.b.c")

    assert run("tools", "--url", "http://user:hidden@127.0.0.1:9") == Exit.USAGE
    assert "error: invalid address: http://127.0.0.1:9 (it has credentials)" in capsys.readouterr().err


@pytest.mark.parametrize("body", [b"<html>", b"{}", b"[]", b"null", b'{"result": 1}', b'{"tools": {}}', b""])
@pytest.mark.parametrize(
    "command",
    [
        ("tools", "--url"),
        ("search", "a word", "--url"),
        ("call", "calculator", "a=1", "--url"),
        ("access", "what-can", "heist/hacker", "--registry"),
    ],
    ids=lambda command: command[0],
)
def test_an_answer_of_something_else_is_no_registrys(
    command: tuple[str, ...], body: bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TOOLCRIB_TOKEN", "a.b.c")

    with serving(200 if body else 204, body) as address:
        assert run(*command, address) == Exit.UNREACHABLE
    said = capsys.readouterr()
    assert said.out == ""
    where = "--registry" if command[0] == "access" else "--url or TOOLCRIB_URL"
    assert said.err.splitlines() == [
        f"error: {address} does not look like a Toolcrib registry",
        f"  hint: specify its address with {where}",
    ]


@pytest.mark.parametrize("result", ["null", "[]", '"text"', "{}", "0"])
def test_a_tool_may_answer_anything(
    result: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TOOLCRIB_TOKEN", "a.b.c")

    with serving(200, f'{{"tool_id": "heist/x", "result": {result}}}'.encode()) as address:
        assert run("call", "x", "--url", address) == Exit.OK
    assert capsys.readouterr().out == result.strip('"') + "\n"


def test_a_review_that_no_registry_answers_names_its_own_option(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TOOLCRIB_TOKEN", "a.b.c")

    assert run("access", "what-can", "heist/hacker", "--registry", "http://127.0.0.1:1") == Exit.UNREACHABLE
    hint = "  hint: start one with `toolcrib up`, or specify its address with --registry\n"
    assert capsys.readouterr().err.endswith(hint)


@pytest.mark.parametrize(
    ("option", "address"),
    [("--registry-url", "http://a..b"), ("--registry-url", "http://xn--.b"), ("--model-url", "http://a..b")],
)
def test_an_agents_address_that_is_none_is_a_usage_error(
    option: str, address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logs, "configure", lambda *_, **__: None)  # the log of this process stays as it is
    given = {"--registry-url": "http://127.0.0.1:1", "--model-url": "http://127.0.0.1:1/v1"} | {
        option: address
    }
    flags = [word for pair in given.items() for word in pair]

    assert run("agent", "run", "--name", "x", "--task", "hi", *flags) == Exit.USAGE
    assert f"toolcrib-runner: {option} (" in capsys.readouterr().err


@pytest.mark.parametrize("body", [b"<html>", b"{}", b"[]", b""])
def test_what_is_no_api_server_is_told_so(body: bytes, tmp_path: Path) -> None:
    with serving(200, body) as address:
        file = kubeconfig(tmp_path, address)
        with pytest.raises(CliError, match="the response is not") as world:
            cluster.read_world(kubeconfig=file)
        with pytest.raises(
            CliError, match=r"what answers is no API server|the response is not"
        ) as config_map:
            cluster.read_config_map("a", "b", kubeconfig=file)
        assert cluster.read_issuer(kubeconfig=file) == ""
    assert (world.value.code, config_map.value.code) == (Exit.UNREACHABLE, Exit.UNREACHABLE)


def test_of_an_api_server_that_is_away_the_cause_is_told(tmp_path: Path) -> None:
    with pytest.raises(CliError, match=r"^no answer from the API server: Connection refused$"):
        cluster.read_world(kubeconfig=kubeconfig(tmp_path, "http://127.0.0.1:1"))


def kubeconfig(folder: Path, address: str) -> str:
    """The path of a file that names this API server, and no credentials."""
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "c", "cluster": {"server": address}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
    }  # fmt: skip
    (folder / "config").write_text(json.dumps(config))
    return str(folder / "config")


def test_of_a_registry_that_is_away_the_cause_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TOOLCRIB_TOKEN", "a.b.c")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and nobody listens
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}"
        assert run("tools", "--url", nobody) == Exit.UNREACHABLE
    assert (
        f"error: no registry answers at {nobody} ([Errno 111] Connection refused)\n"
        in capsys.readouterr().err
    )

    with registry(200) as plain:
        assert run("tools", "--url", plain.replace("http:", "https:")) == Exit.UNREACHABLE
    assert "wrong version number" in capsys.readouterr().err.lower().replace("_", " ")


@pytest.mark.parametrize(
    ("status", "problem", "command", "said"),
    [
        (
            401,
            {"code": "invalid_token", "detail": "Not accepted: the token's service account was deleted"},
            ("tools", "--url"),
            [
                "error: invalid_token: Not accepted: the token's service account was deleted",
                "  hint: get a new token; in the local mode: `toolcrib token NAME`",
            ],
        ),
        (
            502,
            {"code": "upstream_unreachable", "detail": "The connection was refused."},
            ("call", "calculator", "--url"),
            [
                "error: upstream_unreachable: The connection was refused.",
                "  hint: check that the tool's service runs; `toolcrib get tools -o describe` shows the last probe",
            ],
        ),
        (
            503,
            {"code": "service_pending", "detail": "Run `toolcrib up` with --backend team/notes=host:port."},
            ("call", "calculator", "--url"),
            ["error: service_pending: Run `toolcrib up` with --backend team/notes=host:port."],
        ),
        (
            403,
            {"code": "not_permitted", "detail": "Access reviews require the scope registry:admin."},
            ("access", "what-can", "heist/hacker", "--registry"),
            [
                "error: not_permitted: Access reviews require the scope registry:admin.",
                "  hint: use a token with registry:admin; in the local mode: `toolcrib token NAME --scopes registry:admin`",
            ],
        ),
        (
            403,
            {"code": "not_permitted", "detail": "This call is not permitted."},
            ("call", "calculator", "--url"),
            [
                "error: not_permitted: This call is not permitted.",
                "  hint: list the tools that this identity may call with `toolcrib tools`",
            ],
        ),
        (
            400,
            {
                "code": "invalid_arguments",
                "detail": "They do not fit.",
                "errors": [
                    {"pointer": "", "message": '"expression" is a required property'},
                    {"pointer": "/a", "message": "is no number"},
                ],
            },
            ("call", "calculator", "--url"),
            [
                "error: invalid_arguments: They do not fit.",
                '  "expression" is a required property',
                "  /a: is no number",
            ],
        ),
    ],
    ids=["a token", "unreachable", "no service", "a review", "a call", "arguments"],
)
def test_a_refusal_and_its_hint_do_not_contradict_each_other(
    status: int,
    problem: dict[str, object],
    command: tuple[str, ...],
    said: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TOOLCRIB_TOKEN", "a.b.c")

    with registry(status, **problem) as address:
        run(*command, address)
    assert capsys.readouterr().err.splitlines() == said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["steps=NaN"], "not finite"),
        (["steps=1e400"], "not finite"),
        (["--json", '{"a": NaN}'], "not finite"),
        (["--json", r'{"a": "\ud800"}'], "not valid Unicode"),
        (["a=\udcff"], "not valid Unicode"),
        (["--json", "[" * 100_000], "nested too deeply"),
    ],
)
def test_arguments_that_json_cannot_carry_are_a_usage_error_and_nobody_is_asked(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "token"
    file.write_text("a.b.c")
    with registry(200) as url:
        assert run("call", "t", "--url", url, "--token-file", str(file), *arguments) == Exit.USAGE

    assert said in capsys.readouterr().err


def test_an_ambiguous_name_is_told_with_the_ids_that_it_may_mean(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "token"
    file.write_text("a.b.c")
    with registry(
        409, code="ambiguous_name", detail="It means several tools.", tool_ids=["a/t", "b/t"]
    ) as url:
        assert run("call", "t", "--url", url, "--token-file", str(file)) == Exit.FAILED

    assert "use one of a/t, b/t" in capsys.readouterr().err


@pytest.mark.parametrize("form", [("-o", "json"), ("-ojson",), ("--output=json",), ("--output", "json")])
def test_for_a_program_an_error_is_json_on_standard_error_and_nothing_else(
    form: tuple[str, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("x.y.z")
    with registry(409, code="ambiguous_name", detail="Two.", tool_ids=["a/x", "b/x"]) as url:
        code = run("describe", "x", "--url", url, "--token-file", str(token), *form)
    said = capsys.readouterr()

    assert code == Exit.FAILED
    assert said.out == ""
    assert json.loads(said.err) == {
        "error": "ambiguous_name: Two.",
        "hint": "use one of a/x, b/x",
        "exit_code": 1,
    }


def test_for_a_program_a_wrong_command_line_is_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    code = run("tools", "--nonsense", "-o", "json")
    said = capsys.readouterr()

    assert (code, said.out) == (Exit.USAGE, "")
    told = json.loads(said.err)
    assert "--nonsense" in told["error"]
    assert told["exit_code"] == 2


def test_an_answer_is_shown_in_its_own_letters_and_what_hides_text_as_an_escape(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("x.y.z")
    for result in ({"city": "Z\u00fcrich"}, {"city": "a\u202eb"}):
        with registry(200, tool_id="a/x", result=result) as url:
            assert run("call", "x", "--url", url, "--token-file", str(token)) == Exit.OK
    shown = capsys.readouterr().out

    assert "Z\u00fcrich" in shown
    assert "\\u202e" in shown
    assert "\u202e" not in shown
