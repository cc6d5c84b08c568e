"""What the search benchmark makes of data that others wrote: nothing is dropped in silence, mistakes have a place."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bench_search
from bench_search import write_set


@pytest.fixture(scope="module")
def folder() -> Iterator[Any]:
    with bench_search.loaded("folder") as (module,):
        yield module


def test_unknown_fields_empty_texts_other_languages_and_no_server_are_fine(
    folder: Any, tmp_path: Path
) -> None:
    write_set(
        tmp_path,
        "one",
        [
            {"id": "a", "name": "a", "description": None, "long_description": "ignored", "tags": None},
            {
                "id": 7,
                "name": "天気",
                "description": "今日の天気" * 4000,
                "parameters": {"都市": None, "n": {"description": "d"}},
            },
        ],
        [
            {"query": "天気", "relevant": [7], "subset": "x"},
            {"query": "", "relevant": ["a"], "equivalent": None},
        ],
    )

    (read,) = folder.read(tmp_path)

    assert [t.tool_id for t in read.tools] == ["a", "7"]
    assert read.tools[0].server is None
    assert read.tools[1].parameters == {"都市": "", "n": "d"}
    assert [q.sought.count for q in read.queries] == [1, 1]
    assert read.remarks == ()


def test_a_byte_order_mark_blank_lines_and_halves_of_characters_do_no_harm(
    folder: Any, tmp_path: Path
) -> None:
    one = write_set(tmp_path, "one", [])
    (one / "tools.jsonl").write_bytes(
        b'\xef\xbb\xbf{"id": "a", "name": "x\\ud800"}\r\n\r\n\n{"id": "b", "name": "b"}'
    )

    (read,) = folder.read(tmp_path)

    assert [t.name for t in read.tools] == ["x?", "b"]


def test_every_mistake_is_named_with_file_line_and_what_is_expected(folder: Any, tmp_path: Path) -> None:
    one = write_set(tmp_path, "one", [{"id": "a", "name": "a"}])
    with (one / "tools.jsonl").open("ab") as file:
        file.write(b'{"id": "b"}\n["list"]\n{"id": "c", "name": "c", "parameters": ["p"]}\n\xff\n{"id": \n')
    (one / "queries.jsonl").write_text('{"query": "q", "relevant": "a"}\n{"query": 3, "relevant": ["a"]}\n')

    with pytest.raises(folder.DataError) as caught:
        folder.read(tmp_path)

    said = str(caught.value).splitlines()
    assert [line.removeprefix(f"{one}/") for line in said] == [
        "tools.jsonl:2: `name` must be a text that is not empty, not null",
        "tools.jsonl:3: a list instead of an object",
        'tools.jsonl:4: `parameters` must be an object of name and text, not ["p"]',
        "tools.jsonl:5: not UTF-8 at byte 0",
        "tools.jsonl:6: not JSON: Expecting value at column 8; one object a line is expected",
        'queries.jsonl:1: `relevant` must be a list of tool ids, not "a"',
        "queries.jsonl:2: `query` must be a text, not 3",
    ]


def test_a_folder_without_sets_says_what_is_expected(folder: Any, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()

    with pytest.raises(folder.DataError, match=r"no folder in it has tools\.jsonl"):
        folder.read(tmp_path)
    with pytest.raises(folder.DataError, match="not a folder"):
        folder.read(tmp_path / "absent")
    write_set(tmp_path, "one", [{"id": "a", "name": "a"}])
    with pytest.raises(folder.DataError, match="no set two; there are: one"):
        folder.read(tmp_path, only=["two"])
    (tmp_path / "notes" / "queries.jsonl").write_text('{"query": "q", "relevant": ["a"]}\n')
    with pytest.raises(folder.DataError, match=r"notes/tools\.jsonl: cannot be read: No such file"):
        folder.read(tmp_path)


def test_one_set_may_be_given_itself(folder: Any, tmp_path: Path) -> None:
    one = write_set(tmp_path, "one", [{"id": "a", "name": "a"}], [{"query": "q", "relevant": ["a"]}] * 3)

    (read,) = folder.read(one, limit=2)

    assert (read.name, len(read.queries)) == ("one", 2)


def test_what_counts_against_a_method_and_what_is_left_out_is_said(folder: Any, tmp_path: Path) -> None:
    write_set(
        tmp_path,
        "one",
        [{"id": "a", "name": "a"}],
        [{"query": "q", "relevant": ["a", "gone"]}, {"query": "r", "relevant": []}],
    )

    (read,) = folder.read(tmp_path)

    assert [q.sought.count for q in read.queries] == [2]
    assert read.remarks == (
        "1 query names relevant ids that tools.jsonl does not have: these count as not found",
        "1 query has no relevant tool: left out, no figure is defined for that",
    )


def test_tools_that_share_an_id_are_all_searched_and_a_hit_on_either_counts(
    folder: Any, tmp_path: Path
) -> None:
    same = {"id": "a", "name": "a", "description": "one"}
    write_set(
        tmp_path, "one", [same, same, same | {"description": "two"}, same | {"description": "three"}],
        [{"query": "q", "relevant": ["a"]}],
    )  # fmt: skip

    (read,) = folder.read(tmp_path)

    assert [(t.tool_id, t.description) for t in read.tools] == [
        ("a", "one"),
        ("a#2", "two"),
        ("a#3", "three"),
    ]
    assert read.queries[0].sought.places == {"a": 0, "a#2": 0, "a#3": 0}
    assert len(read.remarks) == 2


def test_an_equivalent_stands_for_the_relevant_tool_of_its_name(folder: Any, tmp_path: Path) -> None:
    write_set(
        tmp_path,
        "one",
        [{"id": f"{s}::{n}", "name": n, "server": s} for s in ("x", "y") for n in ("read", "write")],
        [{"query": "q", "relevant": ["x::read", "x::write"], "equivalent": ["y::write"]},
         {"query": "q", "relevant": ["x::read"], "equivalent": ["y::write", "absent"]}],
    )  # fmt: skip

    first, second = folder.read(tmp_path)[0].queries

    assert first.sought.places["y::write"] == first.sought.places["x::write"]
    assert second.sought.anywhere == {"y::write"}


def test_a_pooled_catalog_keeps_what_is_right_in_its_set(folder: Any, tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_set(tmp_path, name, [{"id": "a", "name": "a"}], [{"query": "q", "relevant": ["a"]}])

    whole = folder.pooled(folder.read(tmp_path))

    assert [t.tool_id for t in whole.tools] == ["one/a", "two/a"]
    assert [(q.origin, dict(q.sought.places)) for q in whole.queries] == [
        ("one", {"one/a": 0}),
        ("two", {"two/a": 0}),
    ]
