"""`docs/words.py`, a part of `make check`: what it finds in pages and strings, and what it leaves alone."""

import runpy
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WORDS = runpy.run_path(str(ROOT / "docs" / "words.py"))


def found(lines: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
    return [(n, hit.group()) for n, line in lines for p, _ in WORDS["rules"]() for hit in p.finditer(line)]


def test_words_are_found_in_the_sentences_of_a_module_and_not_in_docstrings_and_names() -> None:
    module = 'def f():\n    """Made anew."""\n    return f"{1} was made anew", "anew", 3\n'

    assert found(WORDS["texts_of_a_module"](module)) == [(3, "anew")]


def test_words_are_found_in_a_page_and_not_in_its_code() -> None:
    page = "It is made anew, `made anew`,\n```\nmade anew\n```\nand is in force."

    assert sorted(found(WORDS["texts_of_a_page"](page))) == [(1, "anew"), (5, "in force")]


def test_of_the_changelog_the_entries_that_are_not_released_are_read() -> None:
    changelog = "# Changelog\n## Unreleased\n- Made anew.\n## 0.1\n- Made anew.\n"

    assert found(WORDS["texts_of_a_changelog"](changelog)) == [(3, "anew")]


def test_texts_of_the_chart_are_read_with_their_comments() -> None:
    assert found(WORDS["texts_of_a_file"]("a: 1\n# -- made anew\nb: in force\n")) == [
        (2, "anew"),
        (3, "in force"),
    ]
    read = {f.name for glob in WORDS["CHART"] for f in (ROOT / "helm" / "toolcrib").glob(glob)}
    assert read >= {"values.yaml", "NOTES.txt", "_tls.tpl", "alerts.yaml", "rbac.yaml"}


def test_sentences_are_counted_in_paragraphs_and_lists_without_code_tables_and_headings() -> None:
    page = (
        "# A heading of five words\n\nOne two three. Four [five six](seven.md): `eight nine ten`.\n\n"
        "| a | table |\n|---|---|\n\n* eleven\n* twelve thirteen\n\n```sh run\nno words here\n```\n"
    )

    assert WORDS["sentences"](page) == [3, 3, 1, 1, 2]


def test_first_lines_of_docstrings_are_those_of_public_things() -> None:
    module = '"""A module.\n\nMore."""\nclass A:\n    """An A, which\n    is long."""\n    def _f(self):\n        """f"""\n'

    assert sorted(WORDS["first_lines"](module)) == [(1, "A module."), (4, "An A, which")]


@pytest.mark.parametrize("line", ["An A, which", "This is an A.", "A" * 125 + "."])
def test_a_first_line_that_is_no_phrase_for_a_table_is_found(line: str) -> None:
    assert WORDS["unfit"](line) is not None
    assert WORDS["unfit"]("The tools that a caller sees, by id.") is None


def test_a_guide_with_long_sentences_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert max(WORDS["averages"]().values()) <= WORDS["LONGEST"]
    monkeypatch.setitem(WORDS["findings"].__globals__, "LONGEST", 9.0)

    assert any(
        "docs/guides/audit.md: " in line and "words a sentence" in line for line in WORDS["findings"]()
    )


def test_too_many_words_in_guides_and_concepts_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    words = WORDS["lengths"]()
    assert sum(words.values()) > words["docs/guides/audit.md"] > 1_000
    monkeypatch.setitem(WORDS["findings"].__globals__, "MOST", 1_000)

    assert any(line.startswith("docs: ") for line in WORDS["findings"]())


def test_pages_and_strings_of_the_repository_hold_none() -> None:
    assert list(WORDS["findings"]()) == []
