"""Arguments of programs in clients' configurations that may hold a secret."""

from __future__ import annotations

import pytest

from toolcrib_cli.imports.servers import of_clients


def _words(*args: str, command: str = "npx") -> list[str]:
    """The arguments that `toolcrib import mcp` prints."""
    (server,) = of_clients({"a": {"command": command, "args": list(args)}})
    assert server.left_out == ""
    return list(server.command[1:])


@pytest.mark.parametrize(
    "option",
    ["-p", "-P", "--pwd", "--pass", "--pin", "--passphrase", "--userPin", "--db-pw", "--DB_PWD", "-pass", "-pwd", "--otp", "--cred", "/pin"],
)  # fmt: skip
@pytest.mark.parametrize("value", ["hunter2", "1234", "-hunter2", "-1", "hunter 2"])
def test_the_value_after_an_option_that_may_name_a_secret_is_masked(option: str, value: str) -> None:
    assert _words("server", option, value, "--verbose") == ["server", option, "FILL-IN", "--verbose"]


@pytest.mark.parametrize(
    "word",
    ["--pwd=hunter2", "-p=hunter2", "-phunter2", "-Phunter", "--pin=1234", "PIN=1234", "--userPin=1234", "/pwd:hunter2",
     "--pass:hunter2", "server --pin 1234", "exec server -p hunter2", "exec server --pwd=x", "mysql -phunter2"],
)  # fmt: skip
def test_a_word_that_holds_an_option_and_its_secret_is_masked(word: str) -> None:
    assert _words("-c", word) == ["-c", "FILL-IN"]


def test_a_command_line_in_the_place_of_the_program_is_masked_if_it_holds_a_secret() -> None:
    (server,) = of_clients({"a": {"command": "server --pin 1234"}})

    assert server.command == ("FILL-IN",)


@pytest.mark.parametrize(
    "words",
    [("-y", "@scope/pin-server", "/tmp"), ("--port", "8080"), ("-port", "8080"), ("run", "-i", "--rm", "ghcr.io/a/b:1"),
     ("--pin", "--verbose"), ("-m", "server", "--spin", "fast"), ("--ping=yes", "a b c"), ("--shipping", "eu")],
)  # fmt: skip
def test_words_beside_no_secret_stay(words: tuple[str, ...]) -> None:
    assert _words(*words) == list(words)
