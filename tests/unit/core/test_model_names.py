"""Names for models: what they look like, and that no two tools of one caller ever have the same."""

import hashlib
import re
from collections import defaultdict
from itertools import count
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from published import binding, bot, tool
from suites import examples
from toolcrib.model_names import model_name, model_names
from toolcrib.snapshot import Snapshot
from toolcrib.view import view_of
from toolcrib.wire.publish import Publish, PublishedTool, Revision

CATALOG = Path(__file__).parents[3] / "examples" / "catalog" / "tools"
VALID = re.compile(r"[A-Za-z0-9_-]{1,48}")


def six(tool_id: str) -> str:
    return hashlib.sha256(tool_id.encode()).hexdigest()[:6]


LONG_ID = f"{'n' * 40}/{'o' * 40}"


@pytest.mark.parametrize(
    ("listed", "tool_id", "name"),
    [
        ("calculator", "heist/calculator", "calculator"),
        ("Read_File-2", "heist/x", "Read_File-2"),
        ("a" * 48, "heist/x", "a" * 48),
        ("heist/calculator", "heist/calculator", "heist__calculator"),
        ("files.read", "heist/files-read", f"heist__files-read_{six('heist/files-read')}"),
        ("get__all", "heist/get-all", f"heist__get-all_{six('heist/get-all')}"),
        ("read_abc123", "heist/read", f"heist__read_{six('heist/read')}"),
        ("read_abc1234", "heist/read", "read_abc1234"),
        ("a" * 49, "heist/x", f"heist__x_{six('heist/x')}"),
        ("heist/x.y", "heist/x.y", f"heist__x_y_{six('heist/x.y')}"),
        ("heist/abc123", "heist/abc123", f"heist__abc123_{six('heist/abc123')}"),
        (LONG_ID, LONG_ID, f"{'n' * 40}__{'o' * 40}"[:41] + f"_{six(LONG_ID)}"),
    ],
)
def test_a_name_for_models_is_the_bare_name_else_namespace__name_else_cut_and_marked(
    listed: str, tool_id: str, name: str
) -> None:
    assert model_name(listed, tool_id) == name
    assert VALID.fullmatch(name)


def met() -> dict[str, str]:
    """Two ids whose marked names are equal: what an author finds who tries object names."""
    tried: dict[str, str] = {}
    for n in count():
        tool_id = f"{'n' * 45}/{n}"
        if (other := tried.setdefault(six(tool_id), tool_id)) != tool_id:
            return {other: other, tool_id: tool_id}
    raise AssertionError


def test_tools_whose_marked_names_meet_both_get_another_whichever_came_first() -> None:
    pair = met()
    first, second = pair
    shared = model_name(first, first)
    assert shared == model_name(second, second)

    found = model_names(pair)

    assert shared not in found.values()
    assert len(set(found.values())) == 2
    assert model_names(dict(reversed(pair.items()))) == found
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{34}_[0-9a-f]{6}_[0-9a-f]{6}", name) for name in found.values())


# what meets: few letters, separators, digits of a mark, and namespaces longer than what is kept of a name
OBJECTS = st.one_of(
    st.from_regex(r"[a-c0]([a-c.-]{0,4}[a-c0])?", fullmatch=True),
    st.just("abc123"),
    st.text("ab", min_size=30, max_size=60),
)
NAMESPACES = st.sampled_from(["a", "b", "a-b", "n" * 34, "n" * 39, "n" * 40, "n" * 41, "n" * 63])
NAMES = st.one_of(
    st.text("ab_.-", min_size=1, max_size=6),
    st.builds("{}__{}".format, NAMESPACES, st.sampled_from(["a", "b", "abc123"])),
    st.builds("{}_{}".format, st.sampled_from(["a", "b", "a__b"]), st.from_regex(r"[a-c0-2]{6}", fullmatch=True)),
    st.text("ab_", min_size=46, max_size=60),
)  # fmt: skip


@st.composite
def catalogs(draw: st.DrawFn) -> list[PublishedTool]:
    made: dict[str, PublishedTool] = {}
    for _ in range(draw(st.integers(1, 14))):
        tool_id = f"{draw(NAMESPACES)}/{draw(OBJECTS)}"
        made[tool_id] = tool(tool_id, name=draw(NAMES))
    # tools named like what models call others: the names that somebody would choose who wants to be taken for them
    for i, other in enumerate(draw(st.lists(st.sampled_from(sorted(made)), max_size=6))):
        for j, listed in enumerate((made[other].name, other)):
            tool_id = f"{draw(NAMESPACES)}/like-{i}-{j}"
            made[tool_id] = tool(tool_id, name=model_name(listed, other))
    return list(made.values())


def snapshot(tools: list[PublishedTool]) -> Snapshot:
    everywhere = binding("everywhere", None)
    return Snapshot().apply(Publish(to=Revision(epoch=1, seq=1), tools=tuple(tools), bindings=(everywhere,)))


@given(catalogs())
@examples(400)
@example([tool(i) for i in met()] + [tool("a/x", name=model_names(met())[i]) for i in list(met())[:1]])
def test_no_two_visible_tools_have_the_same_name_for_models(tools: list[PublishedTool]) -> None:
    view = view_of(bot(), snapshot(tools), 0.0)

    names = [view.model_name(i) for i in view.tools]

    assert len(view.tools) == len(tools)
    assert len(set(names)) == len(names)
    assert all(VALID.fullmatch(name) for name in names)
    for listed, tool_id in view.names.items():
        alone = model_name(listed, tool_id)
        assert view.model_name(tool_id) == alone or names.count(alone) == 0


def test_a_view_tells_two_tools_apart_whose_marked_names_meet() -> None:
    first, second = met()
    # a dot: neither may have its bare name
    view = view_of(bot(), snapshot([tool(first, name="a.b"), tool(second, name="a.c")]), 0.0)
    assert model_name("a.b", first) == model_name("a.c", second)

    assert view.model_name(first) != view.model_name(second)
    assert model_name("a.b", first) not in (view.model_name(first), view.model_name(second))


def test_all_tools_of_the_catalog_have_names_for_models_of_their_own() -> None:
    tools = []
    for path in sorted(CATALOG.glob("*.yaml")):
        for found in yaml.load_all(path.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            if found and found["kind"] == "Tool":
                meta, spec = found["metadata"], found["spec"]
                tools.append(
                    tool(f"{meta['namespace']}/{meta['name']}", name=spec.get("name", meta["name"]), server=spec.get("server"))
                )  # fmt: skip
    view = view_of(bot(), snapshot(tools), 0.0)

    forms: dict[str, int] = defaultdict(int)
    for listed, tool_id in view.names.items():
        name = view.model_name(tool_id)
        forms["bare" if name == listed else "id" if name == tool_id.replace("/", "__") else "marked"] += 1
    names = {view.model_name(i) for i in view.tools}

    print(dict(forms))
    assert len(names) == len(view.tools) == len(tools) == 2651
    assert all(VALID.fullmatch(name) for name in names)
    assert sum("." in t.name for t in tools) == 10
    assert sum("__" in t.name for t in tools) == 2
