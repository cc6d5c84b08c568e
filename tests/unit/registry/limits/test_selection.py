"""Whom a call is charged to, among the bindings that grant it."""

from collections.abc import Mapping

from published import binding, bot, client
from toolcrib.wire.publish import PublishedBinding, PublishedLimits
from toolcrib_registry.limits.counters import Demand, Limit, Shortage, account_of
from toolcrib_registry.limits.selection import first_by_order, select


def full(seconds: int, group: int = 0, place: int = 0) -> Shortage:
    return Shortage(Limit.PER_MINUTE, seconds, group, place)


def limited(name: str, namespace: str | None = "team-a") -> PublishedBinding:
    return binding(name, namespace, limits=PublishedLimits(per_minute=1))


A, B, C = (Demand(name, PublishedLimits(per_minute=1)) for name in "abc")
FREE = Demand("free", None)


def selected(
    groups: list[list[Demand]], short: Mapping[str, Shortage], asked: list[str] | None = None
) -> tuple[int, ...] | Shortage:
    """By what the accounts lack; who is not among `short` has room."""

    def lacks(demand: Demand) -> Shortage | None:
        if asked is not None:
            asked.append(demand.account)
        return short.get(demand.account)

    return select(groups, lacks)


def test_the_first_with_room_is_chosen_and_nobody_after_it_is_asked() -> None:
    asked: list[str] = []
    assert selected([[A, B, C]], {"a": full(9)}, asked) == (1,)
    assert asked == ["a", "b"]


def test_one_without_limits_is_never_asked_and_has_room() -> None:
    asked: list[str] = []
    assert selected([[FREE, A]], {}, asked) == (0,)
    assert asked == []


def test_of_several_that_are_full_the_one_with_room_first_is_told() -> None:
    found = selected([[FREE], [A, B, C]], {"a": full(50), "b": full(7), "c": full(20)})
    assert found == full(7, group=1, place=1)


def test_each_is_asked_once_whatever_it_answers() -> None:
    asked: list[str] = []
    assert selected([[A, B], [B, A], [A, C]], {"a": full(3)}, asked) == (1, 0, 1)
    assert asked == ["a", "b", "c"]


def test_a_group_without_room_ends_it() -> None:
    asked: list[str] = []
    assert selected([[A], [B], [C]], {"b": full(3)}, asked) == full(3, group=1)
    assert asked == ["a", "b"]


def test_the_one_that_is_named_is_the_first_by_the_authorizers_order() -> None:
    whole, a, b = limited("z", None), limited("a"), limited("b")
    assert first_by_order([b, a, whole]) is whole
    assert first_by_order([b, a]) is a


def test_an_account_is_a_binding_an_issuer_and_a_subject_and_nothing_else() -> None:
    a = limited("a")
    made = account_of(a, bot())
    assert made == account_of(a.model_copy(update={"generation": 9, "name": "renamed"}), bot(expires_at=1.0))
    others = [
        account_of(a.model_copy(update={"uid": "made-anew"}), bot()),
        account_of(a, bot(name="other")),
        account_of(a, bot(issuer="https://other.example")),
        account_of(a, client("x", issuer='a", "b')),
        account_of(a, client('b", "x', issuer="a")),
    ]
    assert len({made, *others}) == 6
    assert "bot" not in made
