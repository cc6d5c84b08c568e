"""What a client command says of tokens, addresses and registries that are not as they should be."""

import contextlib
import http.server
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolcrib_cli import main as cli
from toolcrib_cli import options
from toolcrib_cli.errors import Exit


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(list(arguments))
    return int(ended.value.code or 0)


@contextlib.contextmanager
def registry(status: int, **problem: object) -> Iterator[str]:
    """The address of a server that answers every request with this problem document."""

    class Refusing(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(problem).encode())

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("held", "said"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        ("a.b.\u00e9".encode(), "holds no token"),
        (b"\xff\x00\xfe\x81", "holds no token"),
        (b"a.b.c\nd.e.f\n", "holds no token"),
        (b"Bearer a.b.c", "holds no token"),
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
    ("held", "said"), [(" ", "is empty"), ("\u00e9", "holds no token"), ("a b", "holds no token")]
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
    "address", ["127.0.0.1:8765", "ftp://x", "//x", "http://[::1", "http://x:port", "http://\u00e9..x"]
)
def test_what_is_no_address_is_a_usage_error_and_not_a_registry_that_is_away(
    address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TOOLCRIB_TOKEN", "a.b.c")

    assert run("tools", "--url", address) == Exit.USAGE
    said, hint = capsys.readouterr().err.splitlines()
    assert said.startswith(f"error: not an address: {address} (")
    assert hint == "  hint: say http://HOST:PORT or https://HOST"


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
                "  hint: get another token",
            ],
        ),
        (
            403,
            {"code": "not_permitted", "detail": "Access reviews need the scope registry:admin."},
            ("access", "what-can", "heist/hacker", "--registry"),
            [
                "error: not_permitted: Access reviews need the scope registry:admin.",
                "  hint: in the local mode `toolcrib token NAME --scopes registry:admin` makes a token that may",
            ],
        ),
        (
            403,
            {"code": "not_permitted", "detail": "This call is not permitted."},
            ("call", "calculator", "--url"),
            [
                "error: not_permitted: This call is not permitted.",
                "  hint: list what this identity may call with `toolcrib tools`",
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
    ids=["a token", "a review", "a call", "arguments"],
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
