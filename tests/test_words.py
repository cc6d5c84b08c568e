"""`docs/words.py`, a part of `make check`: what it finds in pages and strings, and what it leaves alone."""

import runpy
from collections.abc import Iterable
from pathlib import Path

WORDS = runpy.run_path(str(Path(__file__).parents[1] / "docs" / "words.py"))


def found(lines: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
    return [(n, hit.group()) for n, line in lines for p, _ in WORDS["rules"]() for hit in p.finditer(line)]


def test_words_are_found_in_the_sentences_of_a_module_and_not_in_docstrings_and_names() -> None:
    module = 'def f():\n    """Made anew."""\n    return f"{1} was made anew", "anew", 3\n'

    assert found(WORDS["texts_of_a_module"](module)) == [(3, "anew")]


def test_words_are_found_in_a_page_and_not_in_its_code() -> None:
    page = "It is made anew, `made anew`,\n```\nmade anew\n```\nand is in force."

    assert sorted(found(WORDS["texts_of_a_page"](page))) == [(1, "anew"), (5, "in force")]


def test_pages_and_strings_of_the_repository_hold_none() -> None:
    assert list(WORDS["findings"]()) == []
