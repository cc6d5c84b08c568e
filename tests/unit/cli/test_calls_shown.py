"""`toolcrib calls` shows a call whole: nothing ends unseen, and nothing in it moves or hides what stands beside it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from toolcrib.wire.confirmations import CallDecision, ConfirmableCall
from toolcrib_cli import main as cli
from toolcrib_cli.commands import calls

LONG = [
    {"text": "x" * 500 + "; rm -rf /"},
    {"a": " " * 300, "z": "rm -rf /"},
    {"list": ["ok"] * 100 + ["rm -rf /"]},
    {"a": {"b": {"c": "y" * 121 + " rm -rf /"}}},
    {"k" * 200: "rm -rf /"},
]


class Waiting:
    """One call that waits, and what was decided about it."""

    def __init__(self, arguments: dict[str, Any], hidden: int = 0) -> None:
        self.decisions: list[CallDecision] = []
        self.call = ConfirmableCall(
            id="0123456789ab", tool_id="heist/pay", agent="heist/payer", issuer="i", subject="s",
            arguments=json.dumps(arguments), hidden=hidden, asked_at=0, expires_at=1, seal="0" * 64,
        )  # fmt: skip

    def waiting(self, namespace: str | None) -> list[ConfirmableCall]:
        return [self.call]

    def decide(self, call: ConfirmableCall, decision: CallDecision) -> None:
        self.decisions.append(decision)


def run(source: Waiting, *arguments: str) -> int:
    @contextmanager
    def opened(*_: Any, **__: Any) -> Iterator[Waiting]:
        yield source

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calls, "_source", opened)
        with pytest.raises(SystemExit) as ended:
            cli.main(["calls", *arguments])
    return int(ended.value.code or 0)


@pytest.mark.parametrize("arguments", LONG)
def test_a_table_says_how_much_of_the_arguments_it_leaves_out(
    arguments: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "400")
    text = json.dumps(arguments)
    assert run(Waiting(arguments), "pending") == 0
    assert f"{text[:120]}… ({len(text) - 120:,} more characters)" in " ".join(
        capsys.readouterr().out.split("\n")
    )


@pytest.mark.parametrize("arguments", LONG)
def test_whoever_confirms_a_call_is_shown_its_arguments_to_the_end(
    arguments: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(source := Waiting(arguments), "confirm", "heist/0123456789ab", "--yes") == 0
    assert json.dumps(arguments) in capsys.readouterr().out
    assert source.decisions == [CallDecision.CONFIRMED]


@pytest.mark.parametrize("hidden", [1, 7, 24, 1_000, 100_000])
def test_hidden_characters_are_named_and_confirmed_by_a_flag(
    hidden: int, capsys: pytest.CaptureFixture[str]
) -> None:
    source = Waiting({"command": "…"}, hidden)
    assert run(source, "confirm", "heist/0123456789ab", "--yes") == 2
    said = capsys.readouterr().err
    assert f"{hidden:,} hidden character" in said
    assert "--with-hidden-arguments" in said
    assert source.decisions == []
    assert run(source, "reject", "heist/0123456789ab", "--yes") == 0
    assert run(source, "confirm", "heist/0123456789ab", "--yes", "--with-hidden-arguments") == 0
    assert source.decisions == [CallDecision.REJECTED, CallDecision.CONFIRMED]
