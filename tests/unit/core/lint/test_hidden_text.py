"""Hidden text: every class of characters is found at every place of a Tool, and what text needs is let alone."""

import time
import unicodedata
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests import tool
from toolcrib import publishing
from toolcrib.lint.hidden_text import hidden_in, message, places
from toolcrib.resources import Tool, parse
from toolcrib.text import hides

DEFAULT_IGNORABLE = [
    (0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x200B, 0x200F),
    (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF),
]  # fmt: skip
"""Default_Ignorable_Code_Point of DerivedCoreProperties.txt, Unicode 16."""
LATER = set(range(0x13439, 0x13440))
"""Format characters of Unicode 15, which this Python's data may not have yet."""
DRAWN = {*range(0x600, 0x606), 0x6DD, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}
"""Cf that is seen. U+070F, which should be drawn and mostly is not, is hidden."""
CLASSES = {
    "control": [*range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), *range(0x7F, 0xA0)],
    "bidi": [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)],
    "tag": [0xE0001, *range(0xE0020, 0xE0080)],
    "zero-width": [0xAD, 0x34F, 0x180E, 0x200B, 0x2060, 0x2061, 0x2064, 0xFEFF, 0x115F, 0x3164, 0xFFA0],
    "selector": [*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)],
    "joiner": [0x200C, 0x200D],
    "separator": [0x2028, 0x2029],
    "return": [0x0D],
}
"""Each is hidden between Latin letters."""
PLACES: dict[str, Callable[[str], dict[str, Any]]] = {
    "title": lambda t: {"title": t},
    "description": lambda t: {"description": t},
    "examples/1": lambda t: {"examples": ["one", t]},
    "returns": lambda t: {"returns": t},
    "message": lambda t: {"message": t, "state": "Deprecated"},
    "inputSchema/description": lambda t: {"inputSchema": {"type": "object", "description": t}},
    "inputSchema/title": lambda t: {"inputSchema": {"type": "object", "title": t}},
    "inputSchema/$comment": lambda t: {"inputSchema": {"type": "object", "$comment": t}},
    "inputSchema/x-note": lambda t: {"inputSchema": {"type": "object", "x-note": t}},
    "inputSchema/required/0": lambda t: {"inputSchema": {"type": "object", "required": [t]}},
    "inputSchema/properties/a~1b/enum/1": lambda t: _property("a/b", {"enum": [1, t]}),
    "inputSchema/properties/a/const": lambda t: _property("a", {"const": t}),
    "inputSchema/properties/a/default/b/0": lambda t: _property("a", {"default": {"b": [t]}}),
    "inputSchema/properties/a/examples/0": lambda t: _property("a", {"examples": [t]}),
    "inputSchema/properties/a/items/anyOf/0/description": lambda t: _property(
        "a", {"items": {"anyOf": [{"description": t}]}}
    ),
    "inputSchema/$defs/D/description": lambda t: {
        "inputSchema": {"type": "object", "$defs": {"D": {"description": t}}}
    },
    "outputSchema/properties/a/description": lambda t: {
        "outputSchema": {"type": "object", "properties": {"a": {"description": t}}}
    },
}


def _property(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"inputSchema": {"type": "object", "properties": {name: schema}}}


def spec_of(**spec: Any) -> Any:
    found = parse(tool("calculator", **spec))
    assert isinstance(found, Tool)
    return found.spec


hidden_points = st.sampled_from(sorted(CLASSES)).flatmap(lambda name: st.sampled_from(CLASSES[name]))


def test_what_is_looked_for_is_what_unicode_calls_control_format_separator_surrogate_or_ignorable() -> None:
    wanted = {p for a, b in DEFAULT_IGNORABLE for p in range(a, b + 1)}
    wanted |= {p for p in range(0x110000) if unicodedata.category(chr(p)) in ("Cc", "Cf", "Zl", "Zp", "Cs")}
    wanted -= {ord("\n"), ord("\t")} | DRAWN
    found = {p for p in range(0x110000) if hidden_in(f"a{chr(p)}a")}
    assert wanted - found == set()
    assert found - wanted <= LATER


@given(st.sampled_from(sorted(PLACES)), hidden_points, st.text("abc xyz", max_size=5))
def test_a_hidden_character_is_found_at_every_place_and_named_without_being_shown(
    place: str, point: int, words: str
) -> None:
    spec = spec_of(**PLACES[place](f"{words}a{chr(point)}a{words}"))
    (found,) = places(spec)
    assert (found.where, found.points) == (place, (point,))
    said = message([found])
    assert f"U+{point:04X}" in said
    assert not any(hides(c) for c in said)


@given(hidden_points.filter(lambda point: unicodedata.category(chr(point)) != "Cc"))
def test_a_hidden_character_in_a_tag_is_found(point: int) -> None:
    # control characters are no part of any tag: the schema refuses them
    (found,) = places(spec_of(tags=["plain", f"a{chr(point)}a"]))
    assert (found.where, found.points) == ("tags/1", (point,))


@given(hidden_points, st.booleans())
def test_a_hidden_character_in_a_key_of_a_schema_is_found(point: int, out: bool) -> None:
    schema = {"type": "object", "properties": {f"pa{chr(point)}th": {"type": "string"}}}
    (found,) = places(spec_of(**{"outputSchema" if out else "inputSchema": schema}))
    assert found.points == (point,)
    assert not any(hides(c) for c in message([found]))


@given(st.lists(hidden_points, min_size=1, max_size=30))
def test_a_run_of_hidden_characters_is_found_whatever_it_is_made_of(points: list[int]) -> None:
    # a carriage return before a newline is one line end; no newline is made here
    assert hidden_in("delete" + "".join(map(chr, points)) + "files")


@pytest.mark.parametrize(
    "text",
    [
        "one\ntwo\tthree", "one\r\ntwo", "naïve – “quoted” … 100 °C", "日本語のツール", "한국어 도구", "Ελληνικά", "עברית",
        "می\u200cخواهم",
        "श्री\u200dमान क्\u200cष", "ശ്രീ\u200dലങ്ക", "\u0dc1\u0dca\u200d\u0dbb\u0dd3", "\u0601\u0662\u0660",
        "👩\u200d💻", "👩🏽\u200d💻", "❤\ufe0f\u200d🔥", "🏳\ufe0f\u200d🌈", "👨\u200d👩\u200d👦", "☎\ufe0f", "☎\ufe0e", "#\ufe0f\u20e3", "©\ufe0f",
    ],
)  # fmt: skip
def test_what_a_script_or_an_emoji_needs_is_not_hidden(text: str) -> None:
    assert hidden_in(text) == ()


@pytest.mark.parametrize(
    "text",
    [
        "cal\u200dculator", "cal\u200cculator", "می\u200cx", "x\u200cمی", "\u200cمی", "می\u200c", "می\u200c\u200cخواهم", "می \u200cخواهم",
        "שלום\u200cשלום", "日\u200d本", "👩\u200da", "a\u200d👩", "👩\u200d\u200d💻", "👩\u200d", "👩\u200c💻", "a\ufe0f", "a\ufe0e", "\ufe0f",
        "❤\ufe0f\ufe0f", "❤\ufe00", "#\ufe0fa", "葛\U000e0100", "🏴\U000e0067\U000e0062\U000e007f", "one\rtwo", "one\r\r\ntwo",
    ],
)  # fmt: skip
def test_a_joiner_or_selector_where_nothing_needs_it_is_hidden(text: str) -> None:
    assert hidden_in(text)


@given(st.text(st.characters(exclude_categories=("Cc", "Cf", "Cs", "Zl", "Zp", "Cn")), max_size=40))
def test_ordinary_text_of_any_script_hides_nothing(text: str) -> None:
    visible = "".join(c for c in text if not hides(c) and c != "\ufe0f")
    assert hidden_in(visible) == ()


def test_a_message_stays_short_however_much_is_hidden() -> None:
    everywhere = {f"p{i}\u200b": {"description": "".join(map(chr, CLASSES["tag"]))} for i in range(500)}
    found = list(places(spec_of(inputSchema={"type": "object", "properties": everywhere})))
    assert len(found) == 1_000
    assert len(message(found)) < 1_000
    assert "and 995 more places" in message(found)


def test_a_published_tool_is_read_like_a_manifest() -> None:
    manifest = parse(tool("calculator", description="add\u202e", outputSchema={"title": "x\u2060y"}))
    assert isinstance(manifest, Tool)
    assert list(map(str, places(publishing.tool(manifest)))) == list(map(str, places(manifest.spec)))


@pytest.mark.usefixtures("no_collections")
@pytest.mark.parametrize("unit", ["a", "é", "\u200b", "\u200d", "م\u200c", "👩\u200d", "\ufe0f", "\r"])
def test_the_cost_is_linear(unit: str) -> None:
    def cost(times: int) -> float:
        text = unit * times
        best = float("inf")
        for _ in range(3):
            began = time.thread_time()
            hidden_in(text)
            best = min(best, time.thread_time() - began)
        return best

    assert cost(200_000) < 40 * cost(20_000) + 0.02
