"""Tokens of service accounts that are gone: nothing is decided in their favour, whatever the bindings say."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from published import CLUSTER, account, binding, bot, client, tool
from suites import examples
from toolcrib.authorizer import Action, Policy, Reason, alternatives, decide, granted_scopes, has_power
from toolcrib.identity import Identity
from toolcrib.resources.bindings import SubjectKind
from toolcrib.snapshot import Snapshot
from toolcrib.view import view_of
from toolcrib.wire.publish import (
    Publish,
    PublishedAccount,
    PublishedBinding,
    PublishedSubject,
    Removed,
    Revision,
)

BOT = ("team-a", "bot")
NOW = 1_000.0


def group(name: str) -> PublishedSubject:
    return PublishedSubject(kind=SubjectKind.GROUP, issuer=CLUSTER, name=name)


def known(uid: str = "u1", namespace: str = "team-a", name: str = "bot") -> PublishedAccount:
    return PublishedAccount(namespace=namespace, name=name, uid=uid)


def policy(*bindings: PublishedBinding, accounts: dict[tuple[str, str], str] | None) -> Policy:
    return Policy.compile(bindings or (binding(),), accounts=accounts)


@pytest.mark.parametrize(
    ("accounts", "uid", "reason"),
    [
        (None, None, Reason.GRANTED),  # the local mode: nobody knows, nothing is checked
        (None, "u1", Reason.GRANTED),
        ({BOT: "u1"}, "u1", Reason.GRANTED),
        ({BOT: "u2"}, "u1", Reason.ACCOUNT_GONE),  # made anew
        ({}, "u1", Reason.ACCOUNT_GONE),  # deleted
        ({("team-a", "other"): "u1"}, "u1", Reason.ACCOUNT_GONE),
        ({BOT: "u1"}, None, Reason.ACCOUNT_GONE),  # a token that does not say whose it is
    ],
)
def test_a_token_is_that_of_the_account_that_there_is_now(
    accounts: dict[tuple[str, str], str] | None, uid: str | None, reason: Reason
) -> None:
    asker, found = bot(account_uid=uid), policy(accounts=accounts)

    decision = decide(asker, tool(), Action.CALL, found, NOW)

    assert decision.reason is reason
    assert found.is_gone(asker) is (reason is Reason.ACCOUNT_GONE)
    assert bool(found.bindings_of(asker)) is bool(decision)
    assert bool(alternatives(asker, tool(), found, NOW)) is bool(decision)
    assert bool(granted_scopes(asker, found, NOW)) is bool(decision)


@pytest.mark.parametrize("name", ["system:serviceaccounts", "system:serviceaccounts:team-a"])
def test_an_account_that_is_bound_through_a_group_alone_is_checked_too(name: str) -> None:
    grant = binding(subjects=(group(name),))
    asker = bot(account_uid="u1")

    assert decide(asker, tool(), Action.CALL, policy(grant, accounts={BOT: "u1"}), NOW)
    gone = decide(asker, tool(), Action.CALL, policy(grant, accounts={BOT: "u2"}), NOW)
    assert gone.reason is Reason.ACCOUNT_GONE


def test_who_is_no_service_account_or_is_bound_by_nothing_is_not_gone() -> None:
    found = policy(accounts={})

    assert not found.is_gone(client())
    assert not found.is_gone(bot(name="unbound", account_uid="u1"))
    assert decide(bot(name="unbound"), tool(), Action.CALL, found, NOW).reason is Reason.NO_BINDING


def test_a_power_goes_with_the_account() -> None:
    admin = binding(namespace=None, scopes=("registry:admin",))
    asker = bot(account_uid="u1")

    assert has_power(asker, "registry:admin", policy(admin, accounts={BOT: "u1"}), NOW)
    assert not has_power(asker, "registry:admin", policy(admin, accounts={BOT: "u2"}), NOW)
    assert not has_power(asker, "registry:admin", policy(admin, accounts={}), NOW)


def step(seq: int, **fields: Any) -> Publish:
    base = Revision(epoch=1, seq=seq - 1) if seq > 1 else None
    return Publish(base=base, to=Revision(epoch=1, seq=seq), **fields)


FULL = {"tools": (tool(),), "bindings": (binding(),)}


def visible(snapshot: Snapshot, asker: Identity) -> set[str]:
    return set(view_of(asker, snapshot, NOW).tools)


def test_the_view_follows_the_account_step_by_step() -> None:
    old, new = bot(account_uid="u1"), bot(account_uid="u2")
    there = Snapshot().apply(step(1, **FULL, accounts=(known(),)))
    deleted = there.apply(step(2, removed=Removed(accounts=("team-a/bot",))))
    anew = deleted.apply(step(3, accounts=(known("u2"),)))

    assert [visible(s, old) for s in (there, deleted, anew)] == [{tool().tool_id}, set(), set()]
    assert [visible(s, new) for s in (there, deleted, anew)] == [set(), set(), {tool().tool_id}]
    assert there.policy.by_subject is anew.policy.by_subject, "an account alone compiles no binding anew"


def test_no_account_at_all_is_something_else_than_not_known() -> None:
    asker = bot(account_uid="u1")

    assert visible(Snapshot().apply(step(1, **FULL, accounts=None)), asker)
    assert not visible(Snapshot().apply(step(1, **FULL, accounts=())), asker)
    # a step that does not speak of accounts leaves them as they are
    none = Snapshot().apply(step(1, **FULL, accounts=()))
    assert none.apply(step(2, tools=(tool("team-a/more"),))).accounts == {}


def test_a_full_snapshot_of_a_leader_that_knows_none_checks_none_any_more() -> None:
    held = Snapshot().apply(step(1, **FULL, accounts=(known("u2"),)))
    other = Publish(to=Revision(epoch=2, seq=1), **FULL)

    assert held.apply(other).accounts is None
    assert held.apply(other).hash == Snapshot().apply(other).hash != held.hash


ACCOUNTS = st.builds(
    PublishedAccount,
    namespace=st.sampled_from(["team-a", "team-b"]),
    name=st.sampled_from(["bot", "other"]),
    uid=st.sampled_from(["u1", "u2"]),
)
KEYS = st.sampled_from(["team-a/bot", "team-a/other", "team-b/bot", "no/body"])


@given(
    st.lists(
        st.tuples(
            st.none() | st.lists(ACCOUNTS, max_size=2, unique_by=lambda a: a.key), st.lists(KEYS, max_size=2)
        ),
        max_size=6,
    )
)
@examples(200)
def test_many_steps_come_to_the_same_accounts_and_hash_as_one(
    steps: list[tuple[list[PublishedAccount] | None, list[str]]],
) -> None:
    held = Snapshot().apply(step(1, **FULL, accounts=()))
    now: dict[str, PublishedAccount] = {}
    for seq, (new, gone) in enumerate(steps, 2):
        accounts = None if new is None else tuple(new)
        held = held.apply(step(seq, accounts=accounts, removed=Removed(accounts=tuple(gone))))
        for key in gone:
            now.pop(key, None)
        now |= {a.key: a for a in new or ()}

    whole = Snapshot().apply(step(1, **FULL, accounts=tuple(now.values())))
    assert (held.accounts, held.hash) == (whole.accounts, whole.hash)
    assert (
        held.policy.accounts == whole.policy.accounts == {(a.namespace, a.name): a.uid for a in now.values()}
    )
    for uid in ("u1", "u2"):
        assert visible(held, bot(account_uid=uid)) == visible(whole, bot(account_uid=uid))


def test_the_hash_sees_every_field_of_an_account() -> None:
    variants = [
        (),
        (known(),),
        (known("u2"),),
        (known(name="other"),),
        (known(namespace="team-b"),),
        (known(), known(name="other")),
    ]
    hashes = {Snapshot().apply(step(1, **FULL, accounts=a)).hash for a in variants}
    assert len(hashes) == len(variants)


def test_accounts_survive_the_wire() -> None:
    sent = step(1, **FULL, accounts=(known(),), removed=Removed(accounts=("a/b",)))
    assert Publish.model_validate_json(sent.model_dump_json()) == sent
    none = step(1, **FULL, accounts=())
    assert Publish.model_validate_json(none.model_dump_json()).accounts == ()


def test_a_binding_of_another_namespaces_account_of_that_name_says_nothing_about_this_one() -> None:
    grant = binding(subjects=(account("team-b", "bot"),))
    assert not policy(grant, accounts={}).is_gone(bot(account_uid="u1"))
