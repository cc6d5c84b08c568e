"""What a URI or a prompt's name means to one caller, of what its servers list."""

import pytest

from published import server
from toolcrib import names
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.offerings import directory
from toolcrib_registry.offerings.directory import Ambiguous, Meant
from toolcrib_registry.offerings.entries import entries
from toolcrib_registry.upstream.lists import Kind


def part(namespace: str, name: str = "docs", of: str = names.RESOURCES) -> PublishedTool:
    return next(each for each in server(name, namespace).parts if each.name == of)


def offering(kind: Kind, *given: tuple[PublishedTool, list[str]]) -> directory.Offers:
    key = {Kind.RESOURCES: "uri", Kind.TEMPLATES: "uriTemplate", Kind.PROMPTS: "name"}[kind]
    return {
        each.tool_id: (each, entries(kind, [{"name": "n", key: text} for text in texts], "s"))
        for each, texts in given
    }


HERE, THERE, AWAY = part("here"), part("there"), part("away")
TEMPLATES = offering(Kind.TEMPLATES, (HERE, ["a://{x}/end"]), (THERE, ["a://{x}/end", "b://{x}/{y}"]))


@pytest.mark.parametrize(
    ("uri", "home", "meant"),
    [
        ("a://1/end", "here", Meant(HERE, "a://1/end")),
        ("a://1/end", "there", Meant(THERE, "a://1/end")),
        ("b://1/2", "here", Meant(THERE, "b://1/2")),
        ("a://1/other", "here", None),
        ("a://end", "here", None),  # the pieces may not share a character
        ("b:/", "here", None),
        ("https://user@host/", "here", None),
    ],
)
def test_a_template_makes_a_uri_by_its_literal_pieces(uri: str, home: str, meant: Meant | None) -> None:
    found = directory.listed(Kind.TEMPLATES, TEMPLATES, home)
    assert directory.meant_by_template(uri, found, home) == meant


def test_templates_of_several_servers_are_ambiguous_where_none_is_near() -> None:
    found = directory.listed(Kind.TEMPLATES, TEMPLATES, "elsewhere")
    with pytest.raises(Ambiguous) as several:
        directory.meant_by_template("a://1/end", found, "elsewhere")
    assert several.value.forms == (
        "toolcrib://here/docs/a%3A%2F%2F1%2Fend",
        "toolcrib://there/docs/a%3A%2F%2F1%2Fend",
    )


ONE, OTHER = part("here", "one"), part("here", "other")


@pytest.mark.parametrize(
    ("listing", "unknown", "home", "bare"),
    [
        ([HERE], [], None, True),
        ([HERE], [THERE], "elsewhere", False),
        ([HERE], [THERE], None, False),
        ([HERE], [THERE], "there", False),
        ([HERE], [THERE], "here", True),  # whatever it lists, one's own namespace holds the key
        ([HERE, AWAY], [THERE], "here", True),
        ([ONE], [OTHER], "elsewhere", True),  # both have one owner
        ([ONE], [OTHER, THERE], "elsewhere", False),
        ([ONE, OTHER], [], "here", False),
    ],
)
@pytest.mark.parametrize("kind", [Kind.RESOURCES, Kind.TEMPLATES, Kind.PROMPTS])
def test_what_an_unknown_list_may_claim_is_held_by_no_other_namespaces_server(
    kind: Kind, listing: list[PublishedTool], unknown: list[PublishedTool], home: str | None, bare: bool
) -> None:
    key = "review" if kind is Kind.PROMPTS else "a://x"
    found = directory.listed(kind, offering(kind, *((each, [key]) for each in listing)), home, unknown)
    assert (key in found.shown) is bare
    if bare:
        assert found.of(key) == found.meant[key]
    else:
        with pytest.raises(Ambiguous) as several:
            found.of(key)
        assert len(several.value.forms) == len(listing) + len(unknown)
        assert set(found.shown) <= set(several.value.forms)
        assert several.value.away == tuple(sorted(f"{each.namespace}/{each.server}" for each in unknown))


@pytest.mark.parametrize(
    ("home", "unknown", "holder"),
    [("here", [THERE], HERE), ("elsewhere", [THERE], None), ("elsewhere", [ONE], HERE), (None, [], HERE)],
)
def test_a_template_holds_no_uri_that_an_unknown_list_may_have(
    home: str | None, unknown: list[PublishedTool], holder: PublishedTool | None
) -> None:
    found = directory.listed(Kind.TEMPLATES, offering(Kind.TEMPLATES, (HERE, ["a://{x}"])), home)
    if holder is not None:
        assert directory.meant_by_template("a://1", found, home, unknown) == Meant(holder, "a://1")
    else:
        with pytest.raises(Ambiguous) as several:
            directory.meant_by_template("a://1", found, home, unknown)
        assert several.value.forms == (
            "toolcrib://here/docs/a%3A%2F%2F1",
            "toolcrib://there/docs/a%3A%2F%2F1",
        )


@pytest.mark.parametrize(
    ("uri", "meant"),
    [
        ("toolcrib://here/docs/c%3A%2F%2Funlisted", Meant(HERE, "c://unlisted")),
        ("toolcrib://away/docs/c%3A%2F%2Funlisted", None),  # a server that the caller does not see
        ("toolcrib://here/docs/https%3A%2F%2Fuser%3Ap%40host", None),
        ("toolcrib://here/docs/toolcrib%3A%2F%2Fhere%2Fdocs%2Fx", None),
        ("toolcrib://here/docs/", None),
    ],
)
def test_the_form_that_names_its_server_reads_any_uri_of_a_visible_one(uri: str, meant: Meant | None) -> None:
    none = directory.listed(Kind.RESOURCES, {}, "here")
    assert directory.meant_by_uri(uri, {HERE.tool_id: HERE}, none) == meant


def test_a_template_keeps_its_expressions_in_the_form_that_names_its_server() -> None:
    assert directory.own_uri(AWAY, "a b://{x}/{+y}") == "toolcrib://away/docs/a%20b%3A%2F%2F{x}%2F{+y}"


def test_prompts_of_one_name_are_named_as_tools_are() -> None:
    here, away = (part(place, of=names.PROMPTS) for place in ("here", "away"))
    offers = offering(Kind.PROMPTS, (here, ["review", "two.dots"]), (away, ["review"]))
    near = directory.listed(Kind.PROMPTS, offers, "here").meant
    assert near["review"] == Meant(here, "review")
    far = directory.listed(Kind.PROMPTS, offers, "elsewhere").meant
    assert "review" not in far
    for found in (near, far):
        assert sorted((m.part.namespace, m.key) for m in found.values()) == [
            ("away", "review"), ("here", "review"), ("here", "two.dots"),
        ]  # fmt: skip
        assert all(len(name) <= 48 and "." not in name for name in found)


@pytest.mark.parametrize(
    "entry",
    [
        5, {}, {"uri": "a://x"}, {"name": "n"}, {"uri": "x", "name": "n"}, {"uri": "a://\u202e", "name": "n"},
        {"uri": "a://x", "name": "n", "description": "d" * 70_000}, {"uri": "a://x", "name": "n", "_meta": {"a": 10**30}},
    ],
)  # fmt: skip
def test_what_cannot_be_passed_on_is_left_out_and_hides_no_other(entry: object) -> None:
    good = {"uri": "a://good", "name": "n"}
    assert [each.key for each in entries(Kind.RESOURCES, [entry, good, good], "s")] == ["a://good"]
