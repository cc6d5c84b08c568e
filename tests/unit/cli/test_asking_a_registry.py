"""What a client command says of tokens, addresses and registries that are not as they should be."""

from pathlib import Path

import pytest

from toolcrib_cli import main as cli
from toolcrib_cli import options
from toolcrib_cli.errors import Exit


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(list(arguments))
    return int(ended.value.code or 0)


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
