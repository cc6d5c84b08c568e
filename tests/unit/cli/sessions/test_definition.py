"""The file of a session: what is refused says file, line and what to write instead."""

from pathlib import Path

import pytest

from toolcrib_cli.errors import CliError
from toolcrib_cli.sessions.definition import Messages, parse, read, stored

AGENT = "agents: [{name: a, account: heist/a, prompt: x}]\n"
GOOD = "session: {name: v}\n" + AGENT


def test_the_least_that_is_a_session_keeps_no_messages_and_needs_no_memory() -> None:
    made = parse(GOOD)
    assert (made.turns, made.session.messages, made.needs.memory) == (1, Messages.DISCARD, None)
    assert made.model.url is None


def test_what_the_store_keeps_of_it_is_the_same_session() -> None:
    made = parse(
        "session: {name: v, rounds: 3, messages: keep, retention: 24h}\nneeds: {memory: degrade}\n" + AGENT
    )
    assert stored(made.as_json()) == made
    assert made.retention_seconds == 86_400


@pytest.mark.parametrize("character", ["\x7f", "\x85", "\u2028", "\ufffe", "\x00", "☂"])
def test_a_character_that_yaml_refuses_or_folds_comes_back_from_the_store(character: str) -> None:
    made = parse(GOOD.replace("prompt: x", f'prompt: "a\\U{ord(character):08x}b"'))
    assert made.agents[0].prompt == f"a{character}b"
    assert stored(made.as_json()) == made


def test_a_stored_session_of_another_version_says_what_is_unknown() -> None:
    with pytest.raises(
        CliError, match=r"another version of Toolcrib wrote this session: session\.mood is unknown"
    ):
        stored(parse(GOOD).as_json().replace('"name":"v"', '"name":"v","mood":"x"'))


def test_agents_take_turns_in_their_order() -> None:
    made = parse(
        "session: {name: v, rounds: 2}\nagents:\n- {name: a, account: h/a, prompt: x}\n- {name: b, account: h/b, prompt: x}\n"
    )
    assert [made.agent_of(n).name for n in range(1, made.turns + 1)] == ["a", "b", "a", "b"]


def test_it_may_lie_in_a_config_map_and_its_lines_are_those_of_the_file() -> None:
    held = "".join(f"    {line}\n" for line in GOOD.splitlines())
    text = f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: s}}\ndata:\n  session.yaml: |\n{held}"
    assert parse(text) == parse(GOOD)
    with pytest.raises(
        CliError, match=r"s\.yaml:7: agents\[0\]\.acount: unknown field \(did you mean account\?\)"
    ):
        parse(text.replace("account", "acount"), Path("s.yaml"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GOOD.replace("prompt: x", "prompt: x, tools: [b]"), r"f:2: agents\[0\]\.tools: a session names no tools.*AgentScopeBinding"),
        (GOOD.replace("prompt: x", "prompt: x, mood: b"), r"f:2: agents\[0\]\.mood: unknown field"),
        (GOOD + "more: 1\n", r"f:3: more: unknown field"),
        (GOOD.replace("name: v", "name: v, retention: 30d"), r"session\.retention: not a duration: '30d'"),
        (GOOD.replace("heist/a", "a"), r"agents\[0\]\.account"),
        (GOOD.replace("prompt: x", "prompt: x, mode: fast"), r"agents\[0\]\.mode"),
        (GOOD.replace("prompt: x}", "prompt: x}, {name: a, account: h/b, prompt: y}"), "two agents are called a"),
        ("needs: {memory: degrade}\n" + GOOD, "needs.memory stores what agents write: set session.messages to keep"),
        ("model: {keyFile: ../key}\n" + GOOD, "must lie in the folder of the session's file"),
        ("model: {keyFile: /etc/passwd}\n" + GOOD, "must lie in the folder of the session's file"),
        ("session: {name: v}\nagents: []\n", "agents: an empty list"),
        ("session: {name: v}\n", "agents: required, but missing"),
        ("", "one session is expected, not 0 documents"),
        (GOOD + "---\n" + GOOD, "one session is expected, not 2 documents"),
        ("a: [", "f:2: not valid YAML"),
        ("a: &a [*a]", "not valid YAML"),
        ("kind: ConfigMap\ndata: {session.yaml: '" + "[" * 200_000 + "'}", "nested deeper than 100 levels"),
        ("kind: ConfigMap\ndata: {other: x}\n", "the ConfigMap has no data"),
        ("[]", "f:1: "),
    ],
)  # fmt: skip
def test_what_is_no_session_is_refused_with_its_place(text: str, said: str) -> None:
    with pytest.raises(CliError, match=said):
        parse(text, Path("f"))


@pytest.mark.parametrize(
    ("content", "said"), [(b"\xff", "not UTF-8"), (b" " * 1_100_000, "larger than 1024 KiB")]
)
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    (file := tmp_path / "s.yaml").write_bytes(content)
    with pytest.raises(CliError, match=said):
        read(file)
