"""Hold what people read against words.toml: pages, and the strings of the product.

`python docs/words.py` prints `file:line: "found" → use` for each finding and ends with 1 if there is one. Code in
pages (fences, spans, link targets), docstrings, and strings without a space are not looked at: names do not change.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "*/README.md",
    "docs/guides/*.md",
    "docs/concepts/*.md",
)
STRINGS = ("core", "operator", "registry_api", "cli", "agent_runner")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`|\]\([^)]*\)", re.MULTILINE | re.DOTALL)


def rules(file: Path = ROOT / "docs" / "words.toml") -> list[tuple[re.Pattern[str], str]]:
    """Each pattern of what not to write, with what to write instead."""
    words = tomllib.loads(file.read_text(encoding="utf-8"))["word"]
    return [
        (re.compile(rf"\b{pattern}", re.IGNORECASE), word["use"]) for word in words for pattern in word["not"]
    ]


def texts_of_a_page(text: str) -> Iterator[tuple[int, str]]:
    """Line numbers and the words of a page, without code."""
    plain = CODE.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)
    yield from enumerate(plain.splitlines(), 1)


def texts_of_a_module(source: str) -> Iterator[tuple[int, str]]:
    """Line numbers and the sentences among the strings of a module, without docstrings."""
    tree = ast.parse(source)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value if " " in node.value else ""


def findings() -> Iterator[str]:
    """One line a finding."""
    known = rules()
    read = [(f, texts_of_a_page) for glob in PAGES for f in sorted(ROOT.glob(glob))]
    read += [(f, texts_of_a_module) for folder in STRINGS for f in sorted((ROOT / folder).rglob("*.py"))]
    for file, texts in read:
        for number, line in texts(file.read_text(encoding="utf-8")):
            for pattern, use in known:
                for found in pattern.finditer(line):
                    yield f'{file.relative_to(ROOT)}:{number}: "{found.group()}" → {use}'


if __name__ == "__main__":
    told = list(findings())
    print("\n".join(told) or "words.toml: nothing found")
    sys.exit(1 if told else 0)
