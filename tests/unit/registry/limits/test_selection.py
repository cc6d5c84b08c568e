"""Whom a call is charged to, among the bindings that grant it."""

from collections.abc import Mapping

import pytest

from published import binding, bot, client
from toolcrib.wire.publish import PublishedBinding, PublishedLimits
from toolcrib_registry.limits.counters import Charge, CountersUnavailable, Limit, Shortage, account_of
from toolcrib_registry.limits.selection import Ask, Choice, choose

pytestmark = pytest.mark.anyio
AWAY = CountersUnavailable("away")


def full(seconds: int) -> Shortage:
    return Shortage(Limit.PER_MINUTE, seconds)


def limited(name: str, namespace: str | None = "team-a") -> PublishedBinding:
    return binding(name, namespace, limits=PublishedLimits(per_minute=1))


def answering(
    answers: Mapping[str, Charge | Shortage | CountersUnavailable | None], asked: list[str] | None = None
) -> Ask:
    """Asks by the binding's name; who is not among `answers` has room."""

    async def ask(made: PublishedBinding) -> Charge | Shortage | None:
        if asked is not None:
            asked.append(made.name)
        answer = answers.get(made.name, Charge(made.name))
        if isinstance(answer, CountersUnavailable):
            raise answer
        return answer

    return ask


A, B, C, FREE = limited("a"), limited("b"), limited("c"), binding("free")


async def test_the_first_with_room_is_chosen_and_nobody_after_it_is_asked() -> None:
    asked: list[str] = []
    choice = await choose([(A, B, C)], answering({"a": full(9)}, asked), Choice())
    assert (choice.complete, choice.deciding, asked) == (True, B, ["a", "b"])
    assert choice.charges == [Charge("b")]


async def test_a_binding_without_limits_is_never_asked_and_has_room() -> None:
    asked: list[str] = []
    choice = await choose([(FREE, A)], answering({}, asked), Choice())
    assert (choice.deciding, choice.charges, asked) == (FREE, [], [])


async def test_of_several_that_are_full_the_one_with_room_first_is_told() -> None:
    choice = await choose([(A, B, C)], answering({"a": full(50), "b": full(7), "c": full(20)}), Choice())
    assert (choice.complete, choice.short, choice.unknown) == (False, (B, full(7)), None)


async def test_one_whose_room_is_not_known_is_passed_over_for_one_that_has_room() -> None:
    choice = await choose([(A, B, FREE)], answering({"a": AWAY, "b": AWAY}), Choice())
    assert (choice.complete, choice.deciding, choice.unknown) == (True, FREE, None)


async def test_where_nobody_has_room_for_certain_the_first_unknown_one_is_named() -> None:
    choice = await choose([(A, B, C)], answering({"a": full(5), "b": AWAY, "c": AWAY}), Choice())
    assert (choice.complete, choice.unknown) == (False, B)


async def test_of_each_group_one_is_charged_and_one_in_two_groups_once() -> None:
    asked: list[str] = []
    choice = await choose([(A, B), (B, A), (C,)], answering({}, asked), Choice())
    assert asked == ["a", "b", "c"]
    again = await choose([(A,), (A, B), (A, C)], answering({}, asked := []), Choice())
    assert (asked, [c.account for c in again.charges]) == (["a"], ["a"])
    assert choice.deciding is A


async def test_a_refusal_is_asked_for_once_and_what_was_charged_before_it_is_known() -> None:
    asked: list[str] = []
    choice = await choose([(A,), (B, C), (B,)], answering({"b": full(3)}, asked), Choice())
    assert asked == ["a", "b", "c"]
    assert (choice.complete, choice.short) == (False, (B, full(3)))
    assert choice.charges == [Charge("a"), Charge("c")]


async def test_the_one_that_is_named_is_the_first_by_the_authorizers_order() -> None:
    whole = limited("z", None)
    choice = await choose([(B,), (A,), (whole,)], answering({}), Choice())
    assert choice.deciding is whole


async def test_no_group_without_candidates_is_taken_for_granted() -> None:
    choice = await choose([(A,), ()], answering({}), Choice())
    assert not choice.complete


def test_an_account_is_a_binding_an_issuer_and_a_subject_and_nothing_else() -> None:
    made = account_of(A, bot())
    assert made == account_of(A.model_copy(update={"generation": 9, "name": "renamed"}), bot(expires_at=1.0))
    others = [
        account_of(A.model_copy(update={"uid": "made-anew"}), bot()),
        account_of(A, bot(name="other")),
        account_of(A, bot(issuer="https://other.example")),
        account_of(A, client("x", issuer='a", "b')),
        account_of(A, client('b", "x', issuer="a")),
    ]
    assert len({made, *others}) == 6
    assert "bot" not in made
