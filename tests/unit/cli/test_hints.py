"""An error of the command line says what to do next: in a hint, in its own words, or in those of the error it passes on."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

CLI = Path(__file__).parents[3] / "cli" / "toolcrib_cli"
ADVICE = re.compile(
    r"[Ss]pecify|needs|takes|goes with|give the file|letters|characters|or 7d|none or a folder"
)
"""Words of messages that need no hint."""
PASSED_ON = re.compile(r"\b(error|refusal|why|message)\b")
"""Variables with another error's words."""


def unadvised(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or ast.unparse(node.func) != "CliError":
            continue
        said = ast.unparse(node.args[0])
        hinted = any(keyword.arg in ("hint", None) for keyword in node.keywords)
        if not (hinted or ADVICE.search(said) or PASSED_ON.search(said)):
            yield said


def test_every_error_of_the_command_line_says_what_to_do() -> None:
    assert [said for file in sorted(CLI.rglob("*.py")) for said in unadvised(file.read_text("utf-8"))] == []


def test_an_error_that_says_what_is_wrong_alone_is_found() -> None:
    assert list(unadvised("raise CliError(f'there is no {ref}', code=2)")) == ["f'there is no {ref}'"]
