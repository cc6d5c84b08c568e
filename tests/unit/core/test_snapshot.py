"""Snapshots: many small steps come to the same as one large one, and old leaders change nothing."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from published import binding, bot, tool
from suites import examples
from toolcrib.errors import EpochFenced, RevisionMismatch
from toolcrib.resources.tools import ToolState
from toolcrib.snapshot import Snapshot
from toolcrib.view import view_of
from toolcrib.wire.backends import PublishedBackend
from toolcrib.wire.publish import Publish, PublishedBinding, PublishedTool, Removed, Revision, fingerprint


def at(epoch: int, seq: int) -> Revision:
    return Revision(epoch=epoch, seq=seq)


def publish(to: Revision, base: Revision | None = None, **fields: Any) -> Publish:
    return Publish(base=base, to=to, **fields)


FULL = publish(at(1, 1), tools=(tool("team-a/a"), tool("team-a/b")), bindings=(binding(),))


def test_a_step_continues_the_revision_that_is_held() -> None:
    first = Snapshot().apply(FULL)

    second = first.apply(publish(at(1, 2), at(1, 1), tools=(tool("team-b/c"),)))

    assert set(second.tools) == {"team-a/a", "team-a/b", "team-b/c"}
    assert set(first.tools) == {"team-a/a", "team-a/b"}
    assert second.revision == at(1, 2)


def test_an_edit_that_moves_no_tool_shares_the_lookup_tables_with_the_snapshot_before() -> None:
    first = Snapshot().apply(FULL)
    edited = tool("team-a/a", description="edited", state=ToolState.DISABLED)

    second = first.apply(publish(at(1, 2), at(1, 1), tools=(edited,)))
    moved = second.apply(publish(at(1, 3), at(1, 2), tools=(tool("team-a/a", scopes=("other",)),)))

    assert second.by_scope is first.by_scope
    assert second.by_name is first.by_name
    assert (first.active_tools, second.active_tools, moved.active_tools) == (2, 1, 2)
    assert moved.by_scope == {("team-a", "use"): {"team-a/b"}, ("team-a", "other"): {"team-a/a"}}
    assert moved.by_name == first.by_name


@pytest.mark.parametrize("base", [at(1, 2), at(1, 0), at(2, 1), at(0, 1)])
def test_a_step_from_another_revision_is_refused(base: Revision) -> None:
    with pytest.raises(RevisionMismatch):
        Snapshot().apply(FULL).apply(publish(at(2, 9), base))


def test_a_step_without_a_first_snapshot_is_refused() -> None:
    with pytest.raises(RevisionMismatch):
        Snapshot().apply(publish(at(1, 2), at(1, 1)))


@pytest.mark.parametrize("base", [None, at(3, 1)])
def test_a_leader_that_was_replaced_changes_nothing(base: Revision | None) -> None:
    held = Snapshot().apply(publish(at(3, 1)))

    with pytest.raises(EpochFenced):
        held.apply(publish(at(2, 99), base))


def test_a_full_snapshot_of_a_new_leader_replaces_everything() -> None:
    held = Snapshot().apply(FULL).apply(publish(at(2, 0), tools=(tool("team-z/z"),)))

    assert (set(held.tools), set(held.bindings)) == ({"team-z/z"}, set())
    assert held.by_scope.keys() == {("team-z", "use")}


@pytest.mark.parametrize("base", [None, at(1, 0)])
def test_nothing_goes_back_within_an_epoch(base: Revision | None) -> None:
    held = Snapshot().apply(publish(at(1, 5)))

    with pytest.raises(RevisionMismatch):
        held.apply(publish(at(1, 4), base))


def test_a_repeated_delivery_changes_nothing() -> None:
    step = publish(at(1, 2), at(1, 1), tools=(tool("team-b/c"),), removed=Removed(tools=("team-a/a",)))
    held = Snapshot().apply(FULL).apply(step)

    assert held.apply(step) is held


def test_removing_what_is_not_there_changes_nothing_but_the_revision() -> None:
    first = Snapshot().apply(FULL)

    second = first.apply(publish(at(1, 2), at(1, 1), removed=Removed(tools=("x/y",), bindings=("nobody",))))

    assert (second.hash, second.tools, second.by_scope) == (first.hash, first.tools, first.by_scope)


def test_the_hash_sees_every_field_of_tools_and_bindings() -> None:
    variants = [
        ((tool(),), (binding(),)),
        ((tool(uid="other"),), (binding(),)),
        ((tool(generation=2),), (binding(),)),
        ((tool(state=ToolState.DISABLED),), (binding(),)),
        ((tool(),), (binding(expires_at=1.0),)),
        ((tool(),), (binding(generation=2),)),
        ((tool(),), ()),
        ((), (binding(),)),
    ]

    hashes = {Snapshot().apply(publish(at(1, 1), tools=t, bindings=b)).hash for t, b in variants}

    assert len(hashes) == len(variants)


def test_a_field_that_a_later_version_adds_changes_no_fingerprint_until_it_is_used() -> None:
    class LaterBackend(PublishedBackend):
        mode: str | None = None

    class Later(PublishedTool):
        backend: LaterBackend | None = None
        extra: tuple[str, ...] = ()
        hints: dict[str, str] = Field(default_factory=dict)

    held = tool(backend=PublishedBackend(url="https://x.example"), input_schema={"type": "object", "x": None})
    later = Later.model_validate_json(held.model_dump_json())

    assert fingerprint(later) == fingerprint(held)
    for used in (
        {"extra": ("x",)},
        {"hints": {"a": "b"}},
        {"backend": LaterBackend(url="https://x.example", mode="m")},
    ):
        assert fingerprint(later.model_copy(update=used)) != fingerprint(held)


def test_a_publish_survives_the_wire() -> None:
    sent = publish(at(1, 2), at(1, 1), tools=(tool("team-b/c", input_schema={"x": 1.0, "b": [None]}),))

    got = Publish.model_validate_json(sent.model_dump_json())

    assert got == sent
    assert '"from":{' in sent.model_dump_json()
    assert Snapshot().apply(FULL).apply(got).hash == Snapshot().apply(FULL).apply(sent).hash


IDS = [f"{ns}/{name}" for ns in ("team-a", "team-b") for name in ("one", "two", "three")]
TOOLS = st.builds(
    tool,
    st.sampled_from(IDS),
    name=st.sampled_from(["x", "X", "y"]),
    scopes=st.sampled_from([("use",), ("read",), ("use", "read")]),
    state=st.sampled_from(ToolState),
    description=st.sampled_from(["", "d"]),
)
BINDINGS = st.builds(
    binding,
    st.sampled_from(["one", "two"]),
    st.sampled_from([None, "team-a", "team-b"]),
    scopes=st.sampled_from([("use",), ("read",), ()]),
    deny=st.sampled_from([(), ("x",)]),
)
STEPS = st.lists(
    st.tuples(
        st.lists(TOOLS, max_size=3),
        st.lists(BINDINGS, max_size=2),
        st.lists(st.sampled_from([*IDS, "no/thing"]), max_size=3),
        st.lists(st.sampled_from(["uid:None/one", "uid:team-a/one", "uid:team-b/two", "none"]), max_size=2),
    ),
    max_size=6,
)


@given(STEPS)
@examples(200)
def test_many_steps_come_to_the_same_as_one(
    steps: list[tuple[list[PublishedTool], list[PublishedBinding], list[str], list[str]]],
) -> None:
    held = Snapshot().apply(publish(at(1, 0)))
    tools: dict[str, PublishedTool] = {}
    bindings: dict[str, PublishedBinding] = {}

    for seq, (added, granted, gone, revoked) in enumerate(steps):
        removed = Removed(tools=tuple(gone), bindings=tuple(revoked))
        held = held.apply(
            publish(at(1, seq + 1), at(1, seq), tools=tuple(added), bindings=tuple(granted), removed=removed)
        )
        for key in gone:
            tools.pop(key, None)
        for key in revoked:
            bindings.pop(key, None)
        tools |= {t.tool_id: t for t in added}
        bindings |= {b.uid: b for b in granted}

    whole = Snapshot().apply(
        publish(at(1, len(steps)), tools=tuple(tools.values()), bindings=tuple(bindings.values()))
    )
    assert (held.tools, held.bindings, held.hash) == (whole.tools, whole.bindings, whole.hash)
    assert (held.by_scope, held.by_name) == (whole.by_scope, whole.by_name)
    assert held.namespaces == whole.namespaces == {t.namespace for t in tools.values()}
    assert held.active_tools == sum(t.active for t in tools.values())
    assert view_of(bot(), held, 0.0) == view_of(bot(), whole, 0.0)
