"""Hold what people read against words.toml: pages, the strings of the product, the texts of the chart.

`python docs/words.py` prints `file:line: "found" → use` for each finding and ends with 1 if there is one. Code in
pages (fences, spans, link targets), docstrings, and strings without a space are not looked at: names do not change.
It also finds public modules, classes and functions whose docstring does not begin with a phrase for a table: one line of
its own that ends with a full stop. And guides whose sentences are too long on average, and guides and concepts that together have too many words.
`python docs/words.py --sentences` prints every page's figures.
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
    "CHANGELOG.md",
    "docs/README.md",
    "docs/guides/*.md",
    "docs/concepts/*.md",
    "docs/contributing/*.md",
    "examples/**/README.md",
    "helm/toolcrib/README.md",
)
STRINGS = (
    "core",
    "operator",
    "registry_api",
    "cli",
    "agent_runner",
    "helm",
    "docs/reference_pages",
    "examples",
)
CHART = (
    "values.yaml",
    "values.schema.json",
    "Chart.yaml",
    "templates/NOTES.txt",
    "templates/**/*.yaml",
    "templates/**/*.tpl",
    "rules/*.yaml",
)
"""In helm/toolcrib: comments, descriptions, notes and messages, and what stands around them."""
PACKAGES = ("core", "operator", "registry_api", "cli", "agent_runner")
PHRASE = 125
"""Characters that a docstring's first line has, at most."""
MEASURED = "docs/guides/*.md"
LONGEST = 17.0
"""Words that a sentence of a guide has on average, at most."""
COUNTED = ("docs/guides/*.md", "docs/concepts/*.md")
MOST = 44_000
"""Words that guides and concepts have together, at most, as `wc -w` counts them: 42,000, and 500 for each of the
guides on teams of agents, a better description, access for a while, and one call that a person confirms."""
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
    nodes = list(ast.walk(ast.parse(source)))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in nodes
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value if " " in node.value else ""


def first_lines(source: str) -> Iterator[tuple[int, str]]:
    """Line numbers and first lines of the docstrings of a module and of its public classes, methods and functions."""
    waiting: list[ast.AST] = [ast.parse(source)]
    while waiting:
        node = waiting.pop()
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if text := ast.get_docstring(node):
            yield getattr(node, "lineno", 1), text.splitlines()[0]
        if isinstance(node, (ast.Module, ast.ClassDef)):
            waiting += [n for n in node.body if not getattr(n, "name", "").startswith("_")]


def unfit(line: str) -> str | None:
    """Why a docstring's first line is no phrase for a table; None if it is one."""
    if len(line) > PHRASE:
        return f"at most {PHRASE} characters"
    if not line.endswith((".", "?")):
        return "one line of its own that ends with a full stop"
    return "begin with the thing, or with what it does" if line.startswith("This ") else None


def texts_of_a_changelog(text: str) -> Iterator[tuple[int, str]]:
    """The entries that are not released yet: what was said of a release stays."""
    new = re.split(r"^## (?!Unreleased)", text, maxsplit=1, flags=re.MULTILINE)[0]
    yield from texts_of_a_page(new)


def texts_of_a_file(text: str) -> Iterator[tuple[int, str]]:
    """Line numbers and lines, of files in which comments and messages stand among other things."""
    yield from enumerate(text.splitlines(), 1)


def sentences(text: str) -> list[int]:
    """How many words each sentence of a page's paragraphs and lists has; headings, tables and code are left out.

    A span of code counts as a word. A sentence ends with a full stop, question or exclamation mark or a colon, or with its paragraph.
    """
    plain = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    plain = re.sub(r"`[^`\n]*`", "code", plain)
    plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", plain)
    counts = []
    for paragraph in re.split(r"\n\s*\n|^\s*(?:[-*]|\d+\.) ", plain, flags=re.MULTILINE):
        if paragraph.lstrip().startswith(("#", "|", "<")):
            continue
        for sentence in re.split(r"[.:?!](?=\s|$)", paragraph):
            if words := re.findall(r"\w[\w'’-]*", sentence):
                counts.append(len(words))
    return counts


def averages() -> dict[str, float]:
    """Words a sentence, of each guide."""
    counts = {f: sentences(f.read_text(encoding="utf-8")) for f in sorted(ROOT.glob(MEASURED))}
    return {str(f.relative_to(ROOT)): sum(each) / len(each) for f, each in counts.items() if each}


def lengths() -> dict[str, int]:
    """Words of each guide and concept, tables and code included."""
    files = [f for glob in COUNTED for f in sorted(ROOT.glob(glob))]
    return {str(f.relative_to(ROOT)): len(f.read_text(encoding="utf-8").split()) for f in files}


def findings() -> Iterator[str]:
    """One line a finding."""
    for page, words in averages().items():
        if words > LONGEST:
            yield f"{page}: {words:.1f} words a sentence on average → at most {LONGEST:g}: one thought a sentence"
    if (total := sum(lengths().values())) > MOST:
        yield f"docs: {total:,} words in guides and concepts → at most {MOST:,}: say a thing once, and link to it"
    known = rules()
    # most lines have none of all: one search says so
    any_of = re.compile("|".join(f"(?:{pattern.pattern})" for pattern, _ in known), re.IGNORECASE)
    read = [
        (f, texts_of_a_changelog if f.name == "CHANGELOG.md" else texts_of_a_page)
        for glob in PAGES
        for f in sorted(ROOT.glob(glob))
    ]
    read += [(f, texts_of_a_file) for glob in CHART for f in sorted((ROOT / "helm" / "toolcrib").glob(glob))]
    read += [(f, texts_of_a_module) for folder in STRINGS for f in sorted((ROOT / folder).rglob("*.py"))]
    for file, texts in read:
        for number, line in texts(file.read_text(encoding="utf-8")):
            for pattern, use in known if any_of.search(line) else ():
                for found in pattern.finditer(line):
                    yield f'{file.relative_to(ROOT)}:{number}: "{found.group()}" → {use}'
    for file in (f for folder in PACKAGES for f in sorted((ROOT / folder).rglob("*.py"))):
        for number, line in first_lines(file.read_text(encoding="utf-8")):
            if use := unfit(line):
                yield f'{file.relative_to(ROOT)}:{number}: "{line}" → {use}'


if __name__ == "__main__":
    if sys.argv[1:] == ["--sentences"]:
        longest = averages()
        print("\n".join(f"{n:6,} words {longest.get(page, 0):5.1f}  {page}" for page, n in lengths().items()))
        print(f"{sum(lengths().values()):6,} words")
        sys.exit()
    told = list(findings())
    print("\n".join(told) or "words.toml: nothing found")
    sys.exit(1 if told else 0)
