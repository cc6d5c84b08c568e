"""What stays in a suggested binding on purpose, and what a patch of it says."""

import dataclasses
from typing import Any

import pytest

import published
from published import OAUTH, account, bot, tool
from toolcrib.audit.replay import Decided, Judged
from toolcrib.audit.suggestions import (
    DENIES,
    POWER,
    YOUNGER,
    Suggestion,
    idle,
    operations,
    otherwise,
    suggest,
)
from toolcrib.audit.uses import Uses
from toolcrib.authorizer import Action, decide
from toolcrib.identity import Identity
from toolcrib.resources.bindings import SubjectKind
from toolcrib.snapshot import Snapshot
from toolcrib.wire.publish import (
    Publish,
    PublishedAccount,
    PublishedBinding,
    PublishedLimits,
    PublishedSubject,
    PublishedTool,
    Revision,
)

pytestmark = pytest.mark.guarantee
NOW = 1_900_000_000.0
READ = tool("team/read", name="read_file", scopes=("fs:read",), server="github")
WRITE = tool("team/write", name="write_file", scopes=("fs:write",), server="github")
GREP = tool("team/grep", name="grep", scopes=("fs:read",), server="web")
ADA, BOB = account("team", "ada"), account("team", "bob")


def snapshot(
    *bindings: PublishedBinding, tools: tuple[PublishedTool, ...] = (READ, WRITE, GREP), seq: int = 1
) -> Snapshot:
    return Snapshot().apply(Publish(to=Revision(epoch=1, seq=seq), tools=tools, bindings=bindings))


def grant(**fields: Any) -> PublishedBinding:
    given = {"uid": "uid-1", "generation": 1, "subjects": (ADA, BOB), "scopes": ("fs:read", "fs:write")}
    return published.binding("files", fields.pop("namespace", "team"), **{**given, **fields})


def used(at: Snapshot, *calls: tuple[Identity, PublishedTool]) -> Uses:
    """What is known of these calls."""
    uses = Uses()
    for who, called in calls:
        decision = decide(who, called, Action.CALL, at.policy, NOW)
        told = (decision.allowed, decision.reason.value)
        by = None if decision.binding is None else {"uid": decision.binding.uid}
        record = {"ts": "2030-03-17T17:46:40.000Z", "action": "call", "binding": by}
        uses.add(Judged(record, called.tool_id, recorded=told, found=told, of=Decided(who, at, NOW)))
    return uses


def after(
    at: Snapshot, *calls: tuple[Identity, PublishedTool], starts: Snapshot | None = None
) -> tuple[Suggestion, ...]:
    """What is suggested once these calls were made."""
    return suggest(used(at, *calls), [starts or at], at)


ADA_CALLS = (bot("team", "ada"), READ)


def test_what_no_call_used_goes_and_what_one_used_stays_with_its_count() -> None:
    (found,) = after(snapshot(grant(servers=("github", "web"))), ADA_CALLS, ADA_CALLS)

    assert found.narrowed == grant(subjects=(ADA,), scopes=("fs:read",), servers=("github",))
    assert [(e.text, e.times) for e in found.left] == [
        ("ServiceAccount/team/ada", 2), ("fs:read", 2), ("github", 2),
    ]  # fmt: skip
    assert [e.text for e in found.gone] == ["ServiceAccount/team/bob", "fs:write", "web"]


def test_wildcards_become_the_names_that_were_used() -> None:
    (found,) = after(snapshot(grant(allow=("read_*", "github:*", "grep"))), ADA_CALLS)

    assert found.narrowed is not None
    assert found.narrowed.allow in (("github:read_file",), ("read_file",)), "one of both is enough"
    assert {e.text for e in found.gone} >= {"read_*", "github:*", "grep"}


def test_a_binding_that_no_call_needs_can_go() -> None:
    (found,) = after(snapshot(grant()))

    assert found.narrowed is None
    assert operations(found) == []


def test_denials_stay_for_all_their_subjects() -> None:
    binding = grant(deny=("write_*",), deny_scopes=("fs:admin",))
    (found,) = after(snapshot(binding), ADA_CALLS)
    (unused,) = after(snapshot(binding))

    assert found.narrowed == binding.model_copy(update={"scopes": ("fs:read",)})
    assert {e.kept for e in found.left if e.entry.field == "subjects"} == {DENIES}
    assert unused.narrowed == binding.model_copy(update={"scopes": ()})
    assert operations(unused)[0][0] == {"op": "remove", "path": "/spec/scopes"}


def test_powers_of_the_registry_stay_with_their_subjects() -> None:
    binding = grant(namespace=None, namespaces=None, scopes=("fs:write", "registry:admin"))
    (found,) = after(snapshot(binding))

    assert found.narrowed == binding.model_copy(update={"scopes": ("registry:admin",)})
    assert {e.kept for e in found.left} == {POWER}


def test_dates_and_limits_stay() -> None:
    limits = PublishedLimits(per_minute=3)
    binding = grant(expires_at=NOW + 60, not_before=NOW - 60, limits=limits)
    (found,) = after(snapshot(binding), ADA_CALLS)

    assert found.narrowed is not None
    assert (found.narrowed.expires_at, found.narrowed.not_before, found.narrowed.limits) == (
        NOW + 60, NOW - 60, limits,
    )  # fmt: skip


def test_what_opens_a_tool_that_is_younger_than_the_period_stays() -> None:
    binding = grant(allow=("*",), servers=("github", "web"))
    before = snapshot(binding, tools=(READ, WRITE))
    (found,) = after(snapshot(binding, seq=2), ADA_CALLS, starts=before)

    assert found.narrowed is not None
    assert (found.narrowed.allow, found.narrowed.servers) == (("grep", "read_file"), ("github", "web"))
    assert {e.text for e in found.left if e.kept == YOUNGER} == {"fs:read", "web", "grep"}


def test_an_account_that_was_made_anew_within_the_period_stays() -> None:
    def with_bob(uid: str, seq: int) -> Snapshot:
        accounts = [
            PublishedAccount(namespace="team", name=n, uid=u) for n, u in (("ada", "a"), ("bob", uid))
        ]
        publish = Publish(
            to=Revision(epoch=1, seq=seq), tools=(READ, WRITE), bindings=(grant(),), accounts=tuple(accounts)
        )
        return Snapshot().apply(publish)

    (found,) = after(
        with_bob("anew", 2), (bot("team", "ada", account_uid="a"), READ), starts=with_bob("first", 1)
    )

    assert found.narrowed is not None
    assert found.narrowed.subjects == (ADA, BOB)


def test_a_binding_that_changed_within_the_period_is_left_alone_also_if_it_was_made_anew() -> None:
    changed = snapshot(grant(generation=2), seq=2)
    anew = snapshot(grant(uid="uid-2"), seq=2)

    for end in (changed, anew):
        assert after(end, ADA_CALLS, starts=snapshot(grant())) == ()


def test_of_two_that_allow_the_same_calls_the_narrower_one_keeps_them() -> None:
    own = published.binding("own", "team", uid="uid-2", generation=1, subjects=(ADA,), scopes=("fs:read",))
    cluster = published.binding("all", None, uid="uid-0", generation=1, subjects=(ADA,), scopes=("fs:read",))
    found = after(snapshot(grant(), own, cluster), ADA_CALLS)

    assert {(s.binding.name, s.narrowed) for s in found} == {("files", None), ("all", None)}


@pytest.mark.parametrize("fields", [{"expires_at": NOW + 60}, {"limits": PublishedLimits(per_minute=3)}])
def test_of_two_that_allow_the_same_calls_the_one_that_ends_or_has_limits_does_not_keep_them(
    fields: dict[str, Any],
) -> None:
    own = published.binding(
        "own", "team", uid="uid-2", generation=1, subjects=(ADA,), scopes=("fs:read",), **fields
    )
    found = after(snapshot(grant(), own), ADA_CALLS)

    assert {s.binding.name: s.narrowed for s in found} == {
        "own": None, "files": grant(subjects=(ADA,), scopes=("fs:read",)),
    }  # fmt: skip


def test_a_suggestion_that_refuses_a_call_or_allows_a_refused_one_is_found() -> None:
    at = snapshot(grant(deny=("grep",)))
    uses = used(at, ADA_CALLS, (bot("team", "ada"), GREP))
    (right,) = suggest(uses, [at], at)
    assert right.narrowed is not None
    assert otherwise([right], uses.questions) == []

    for wrong, tool_id in (
        (None, "team/read"),
        (right.narrowed.model_copy(update={"subjects": (BOB,)}), "team/read"),
        (right.narrowed.model_copy(update={"deny": ()}), "team/grep"),
    ):
        found = otherwise([dataclasses.replace(right, narrowed=wrong)], uses.questions)
        assert [q.tool.tool_id for q in found] == [tool_id]


def test_a_patch_tests_each_entry_before_it_removes_it() -> None:
    client = PublishedSubject(kind=SubjectKind.OAUTH_CLIENT, issuer=OAUTH, client_id="cli")
    (found,) = after(snapshot(grant(subjects=(ADA, client, BOB), allow=("*",))), ADA_CALLS)

    assert [operation for operation, _ in operations(found)] == [
        {"op": "test", "path": "/spec/subjects/2/name", "value": "bob"},
        {"op": "remove", "path": "/spec/subjects/2"},
        {"op": "test", "path": "/spec/subjects/1/clientId", "value": "cli"},
        {"op": "remove", "path": "/spec/subjects/1"},
        {"op": "test", "path": "/spec/scopes/1", "value": "fs:write"},
        {"op": "remove", "path": "/spec/scopes/1"},
        {"op": "test", "path": "/spec/tools/allow", "value": ["*"]},
        {"op": "replace", "path": "/spec/tools/allow", "value": ["read_file"]},
    ]


def test_tools_that_several_subjects_are_granted_and_nobody_called_are_named() -> None:
    at = snapshot(grant())
    uses = Uses()

    assert idle(uses, at) == [("team/grep", 2), ("team/read", 2), ("team/write", 2)]
