"""The set digest names what models read of a server, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcp_lists import definition
from toolcrib.wire.imports import ServerList
from toolcrib_registry.importing import lists
from toolcrib_registry.upstream.lists import Listed
from toolcrib_registry.upstream.servers import Facts

BASE = definition(
    "read",
    title="Read",
    outputSchema={"type": "object"},
    annotations={"readOnlyHint": True},
    icons=[{"src": "https://a.example/i.png"}],
    _meta={"a/b": 1},
)


def digest(*tools: Any, instructions: str = "") -> str:
    return lists.held("team/files", listed(*tools, instructions=instructions)).set_digest


def listed(*tools: Any, instructions: str = "") -> Listed:
    return Listed(tools, Facts("2026-07-28", {"name": "x"}, {}, instructions))


@pytest.mark.parametrize(
    "change",
    [
        {"name": "write"},
        {"title": "Write"},
        {"title": None},
        {"description": "Other."},
        {"inputSchema": {"type": "object", "properties": {}}},
        {"outputSchema": {"type": "array"}},
        {"annotations": {"readOnlyHint": False}},
        {"icons": [{"src": "https://a.example/j.png"}]},
        {"_meta": {"a/b": 2}},
    ],
)
def test_each_field_that_a_model_may_read_changes_the_digest(change: dict[str, Any]) -> None:
    assert digest({**BASE, **change}) != digest(BASE)


def test_so_do_instructions_a_tool_more_and_an_entry_that_is_no_tool() -> None:
    plain = digest(BASE)
    assert len({plain, digest(BASE, instructions="x"), digest(BASE, BASE), digest(BASE, {}), digest()}) == 5


def test_what_a_server_says_of_itself_may_be_anything_but_its_credential() -> None:
    odd = {"name": "half \ud800", "version": 10**30, "icons": [{}], "title": "first-secret"}

    assert (
        lists.held("team/files", Listed((BASE,), Facts("2026-07-28", odd, {}, "")), ("other-secret",)).tools
        == 1
    )
    with pytest.raises(lists.CredentialRepeated):
        lists.held("team/files", Listed((BASE,), Facts("2026-07-28", odd, {}, "")), ("first-secret",))


@pytest.mark.parametrize("same", [{"x-own": 1}, {"execution": {"taskSupport": "optional"}}])
def test_fields_that_are_not_handed_on_do_not(same: dict[str, Any]) -> None:
    assert digest({**BASE, **same}) == digest(BASE)


def test_order_and_absent_fields_do_not() -> None:
    other = definition("write")
    assert digest(BASE, other) == digest(other, dict(reversed(BASE.items())))
    assert digest({**other, "title": None}) == digest(other)


def test_half_a_character_is_left_out_of_texts_that_are_handed_on() -> None:
    half = json.loads('"\\ud800"')
    found = lists.held("team/files", listed({**BASE, "title": half}, {"name": half}, instructions=half))
    handed = ServerList.model_validate_json(found.body)
    assert handed.instructions == "?"
    assert [entry.name for entry in handed.unusable] == ["read", "?"]


def test_what_is_kept_shows_no_content() -> None:
    assert "Read" not in repr(lists.held("team/files", listed(BASE)))
