"""What a log states of a policy: all that decides, in records of a bounded size, and each change of it."""

from typing import Any
from unittest import mock

import pytest

import published
from published import binding, bot, client, tool
from toolcrib.audit import chain as audit_chain
from toolcrib.audit import policy_records
from toolcrib.audit.callers import caller_of, identity_of, unmet_dates
from toolcrib.audit.stated_policy import StatedPolicy
from toolcrib.authorizer import Policy
from toolcrib.identity import ScopesPolicy
from toolcrib.resources.bindings import SubjectKind
from toolcrib.snapshot import Snapshot
from toolcrib.wire.publish import (
    Publish,
    PublishedAccount,
    PublishedBinding,
    PublishedSubject,
    PublishedTool,
    Removed,
    Revision,
)

pytestmark = pytest.mark.guarantee


def at(seq: int) -> Revision:
    return Revision(epoch=1, seq=seq)


def snapshot(**fields: Any) -> Snapshot:
    return Snapshot().apply(Publish(to=at(1), **fields))


def step(before: Snapshot, seq: int, **fields: Any) -> Snapshot:
    return before.apply(Publish(base=before.revision, to=at(seq), **fields))


def test_every_field_that_is_published_is_recorded_or_decides_nothing() -> None:
    """A new field belongs to one of both: else a log would be replayed without it."""
    assert PublishedBinding.model_fields.keys() == policy_records.BINDING_FIELDS | {"limits"}
    shown = {"title", "description", "tags", "examples", "packed_input", "packed_output", "returns", "annotations",
             "source_digests", "backend", "fallback", "confirm", "source"}  # fmt: skip
    recorded = {"tool_id", "uid", "generation", "namespace", "name", "server", "scopes", "scope_match", "state", "quarantined",
                "replaced_by", "message", "digest", "route_digest", "candidate", "trial"}  # fmt: skip
    assert PublishedTool.model_fields.keys() == shown | recorded


def test_records_of_a_large_policy_have_64_kib_at_most_and_few_lines() -> None:
    given = snapshot(
        tools=[tool(f"team-{i % 9}/tool-{i:05}", scopes=(f"s-{i % 50}",)) for i in range(3000)],
        bindings=[binding(f"grant-{i:04}") for i in range(500)],
        accounts=[PublishedAccount(namespace="n", name=f"a-{i}", uid=f"u-{i}") for i in range(500)],
    )
    told = policy_records.start(given, published_issuers())
    assert max(len(audit_chain.canonical(fields)) for _, fields in told) <= 63 * 1024
    assert len(told) < 30
    assert told[0][1]["records"] == len(told) - 1
    read = StatedPolicy()
    for action, fields in told:
        read.take({"action": action, **fields})
    assert (found := read.at("1.1")) is not None
    assert found.tools.keys() == given.tools.keys()
    assert found.bindings == given.bindings
    assert found.accounts == given.accounts


def published_issuers() -> list[Any]:
    return []


def test_a_namespace_that_is_relabelled_is_one_record_and_not_one_a_binding() -> None:
    selecting = [binding(f"b-{i}", None, namespaces=("a", "b")) for i in range(20)]
    before = snapshot(bindings=selecting)
    after = step(before, 2, bindings=[b.model_copy(update={"namespaces": ("a",)}) for b in selecting])
    assert policy_records.changes(before, after) == [
        ("policy.namespace", {"revision": "1.2", "ended": ["b"]})
    ]


def test_a_change_of_a_tool_goes_through_no_binding_s_namespaces() -> None:
    selecting = [binding(f"b-{i}", None, namespaces=("a", "b")) for i in range(20)]
    before = snapshot(bindings=selecting, tools=[tool()])
    with mock.patch.object(policy_records, "_selected", side_effect=AssertionError):
        told = policy_records.changes(before, step(before, 2, tools=[tool(scopes=("other",))]))

    assert [action for action, _ in told or ()] == ["policy.tool"]


def test_the_start_says_what_is_not_replayed() -> None:
    ((action, fields), *_) = policy_records.start(snapshot(), [])

    assert (action, fields["not_replayed"]) == ("policy.start", ["limits", "backends"])


def test_a_change_that_decides_nothing_is_its_revision_alone() -> None:
    before = snapshot(tools=[tool()], bindings=[binding()])
    after = step(before, 2, bindings=[binding(limits={"per_minute": 3})])
    assert policy_records.changes(before, after) == [("policy.revision", {"revision": "1.2"})]


def test_what_ended_is_named_with_its_revision() -> None:
    before = snapshot(tools=[tool()], bindings=[binding()], accounts=[])
    after = step(before, 2, removed=Removed(tools=("team-a/calculator",), bindings=("uid:team-a/grant",)))
    told = policy_records.changes(before, after)
    assert told == [
        ("policy.binding", {"revision": "1.2", "ended": ["uid:team-a/grant"]}),
        ("policy.tool", {"revision": "1.2", "ended": ["team-a/calculator"]}),
    ]
    assert policy_records.changes(before, Snapshot(revision=at(3))) is None  # accounts are not known any more


def test_a_caller_is_what_decides_of_it() -> None:
    named = PublishedSubject(kind=SubjectKind.GROUP, issuer=published.OAUTH, name="ops")
    policy = Policy.compile([binding(subjects=(named,))])
    who = client(scopes=frozenset({"b", "a"}), groups=frozenset({"ops", "secret-project"}), token_id="t")
    told = caller_of(who, policy)
    assert told.fields["groups"] == ["ops"]
    assert told.fields["scopes"] == ["a", "b"]
    assert len(told.digest) == 16
    assert caller_of(client(scopes=frozenset({"a", "b"}), groups=frozenset({"ops"})), policy) == told
    assert caller_of(client(scopes=frozenset({"a"}), groups=frozenset({"ops"})), policy) != told
    assert "scopes" not in caller_of(bot(scopes=frozenset({"a"})), policy).fields
    again = identity_of(told.fields)
    assert (again.groups, again.scopes, again.policy) == ({"ops"}, {"a", "b"}, ScopesPolicy.INTERSECTION)


def test_dates_of_a_token_are_recorded_where_they_were_not_met() -> None:
    who = bot(expires_at=100.0, not_before=50.0)
    assert [unmet_dates(who, now) for now in (10.0, 20.0, 99.999, 100.0)] == [
        {"not_before": 50.0},
        {},
        {},
        {"expires_at": 100.0},
    ]
