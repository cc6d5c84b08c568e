"""`toolcrib health` against real servers on loopback: what it asks, what it believes, and what it says."""

import contextlib
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from realparts import pki, processes
from stub_server import Answer, Asked, answering
from toolcrib_cli import main as cli
from toolcrib_cli import probe
from toolcrib_cli.errors import Exit


def _part(asked: Asked) -> Answer:
    """Alive, but not ready; `/moved` redirects."""
    if asked.path == "/moved":
        return Answer(status=302, headers={"Location": "/healthz"})
    status, body = {
        "/healthz": (200, b'{"status":"healthy"}\nmore'),
        "/readyz": (503, b'{"ready":false,"missing":["snapshot"]}'),
    }.get(asked.path, (404, b"not found"))
    return Answer(body, status)


def served(context: ssl.SSLContext | None = None) -> contextlib.AbstractContextManager[int]:
    return answering(_part, context)


@pytest.fixture(scope="module")
def part() -> Iterator[int]:
    with served() as port:
        yield port


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    pki.write_server_certificate(folder, ("localhost", "127.0.0.1"))
    return folder


@pytest.fixture(scope="module")
def encrypted(authority: Path) -> Iterator[int]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority / "server.crt", authority / "server.key")
    with served(context) as port:
        yield port


@pytest.fixture(autouse=True)
def _no_address_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOOLCRIB_HEALTH_URL", raising=False)


def run(*arguments: object) -> int:
    """The exit code; where no other time is said, a busy machine may take long to answer."""
    with pytest.raises(SystemExit) as ended:
        cli.main(["health", "--timeout", "30", *map(str, arguments)])
    return int(ended.value.code or 0)


def test_a_live_part_ends_with_zero_and_a_line_with_its_answer(
    part: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(f"http://127.0.0.1:{part}") == Exit.OK

    assert (
        capsys.readouterr().out == f'http://127.0.0.1:{part}/healthz answered 200: {{"status":"healthy"}}\n'
    )


def test_a_part_that_is_not_ready_ends_with_one_and_says_why(
    part: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(f"http://127.0.0.1:{part}", "--ready") == Exit.FAILED

    said = capsys.readouterr().err
    assert "/readyz answered 503" in said
    assert "snapshot" in said


def test_an_address_with_a_path_is_asked_as_it_is(part: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"http://127.0.0.1:{part}/nothing") == Exit.FAILED
    assert "/nothing answered 404" in capsys.readouterr().err


def test_a_redirect_is_not_followed(part: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"http://127.0.0.1:{part}/moved") == Exit.FAILED
    assert "answered 302" in capsys.readouterr().err


def test_the_address_may_come_from_the_environment(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLCRIB_HEALTH_URL", f"http://127.0.0.1:{part}")

    assert run() == Exit.OK
    assert run("--ready") == Exit.FAILED


def test_a_proxy_is_not_asked(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")

    assert run(f"http://127.0.0.1:{part}") == Exit.OK


def test_nobody_there_ends_with_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"http://127.0.0.1:{processes.free_port()}") == Exit.FAILED
    assert "nothing listens there" in capsys.readouterr().err


def test_a_part_that_does_not_answer_is_given_up_in_time(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert run(f"http://127.0.0.1:{silent.getsockname()[1]}", "--timeout", "0.2") == Exit.FAILED
    assert "no answer within 0.2 s" in capsys.readouterr().err


@pytest.mark.parametrize(
    "address", ["127.0.0.1:8081", "ftp://host", "http://", "http://host:0", "http://h:99999"]
)
def test_what_is_no_address_is_a_usage_error(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(address) == Exit.USAGE
    assert "error:" in capsys.readouterr().err


def test_a_certificate_is_verified_unless_told_otherwise(
    encrypted: int, authority: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address = f"https://127.0.0.1:{encrypted}"

    assert run(address) == Exit.FAILED
    said = capsys.readouterr().err
    assert "certificate is not trusted" in said
    assert "--ca-file" in said
    assert run(address, "--ca-file", authority / "ca.crt") == Exit.OK
    assert run(address, "--insecure") == Exit.OK


def test_a_ca_file_without_a_certificate_is_a_usage_error(
    encrypted: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "ca.crt"
    empty.write_text("nothing\n")

    assert run(f"https://127.0.0.1:{encrypted}", "--ca-file", empty) == Exit.USAGE
    assert "--ca-file" in capsys.readouterr().err


def test_the_wrong_protocol_is_said(part: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"https://127.0.0.1:{part}", "--insecure") == Exit.FAILED
    assert "does not speak this protocol" in capsys.readouterr().err


def test_without_an_address_the_first_part_that_listens_is_asked_by_http_or_tls(
    part: int, encrypted: int
) -> None:
    closed = processes.free_port()

    assert probe.ask_own(probe.LIVE, 30, (closed, part)).well
    assert not probe.ask_own(probe.READY, 30, (closed, part)).well
    assert probe.ask_own(probe.LIVE, 30, (closed, encrypted)).why.startswith(f"https://127.0.0.1:{encrypted}")
    assert "nothing listens" in probe.ask_own(probe.LIVE, 30, (closed,)).why
