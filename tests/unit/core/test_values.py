"""Durations, instants, digests, conditions and shown text."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError

from toolcrib import digest
from toolcrib.lint import suspicions
from toolcrib.lint import weaknesses as lint
from toolcrib.resources import durations
from toolcrib.resources.conditions import (
    MAX_MESSAGE,
    MEANINGS,
    NEXT_STEPS,
    Condition,
    ConditionReason,
    condition,
    merge,
)
from toolcrib.text import escape, truncate


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("1500ms", 1.5), ("10s", 10), ("5m", 300), ("1h", 3_600)]
)
def test_a_duration_is_read_in_seconds(text: str, seconds: float) -> None:
    assert durations.seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "0s", "10", "s", "1.5s", "-1s", "1d", "1m30s", " 1s", "1s\n", "١s", "1S"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        durations.seconds(text)


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2027-01-31T12:00:00Z", datetime(2027, 1, 31, 12, tzinfo=UTC)),
        ("2027-01-31T12:00:00+02:00", datetime(2027, 1, 31, 10, tzinfo=UTC)),
        ("2027-01-31T12:00:00.123456789Z", datetime(2027, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)),
        ("2028-02-29T23:59:59-23:59", datetime(2028, 3, 1, 23, 58, 59, tzinfo=UTC)),
        ("9999-12-31T23:59:59Z", datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)),
        ("1970-01-01T00:00:00Z", datetime(1970, 1, 1, tzinfo=UTC)),
    ],
)
def test_an_instant_is_read_with_its_zone(text: str, utc: datetime) -> None:
    assert durations.instant(text) == utc.timestamp()


def test_the_last_instant_of_a_western_zone_does_not_overflow() -> None:
    assert durations.instant("9999-12-31T23:59:59-23:59") > durations.instant("9999-12-31T23:59:59Z")


@pytest.mark.parametrize(
    "text",
    ["", "2027-01-31", "2027-01-31T12:00:00", "2027-01-31 12:00:00Z", "2027-02-30T12:00:00Z", "2027-13-01T00:00:00Z",
     "2027-01-31T24:00:00Z", "2027-01-31T12:00:60Z", "0000-01-01T00:00:00Z", "1969-12-31T23:59:59Z",
     "2027-01-31T12:00:00z", "2027-01-31T12:00Z", "2027-01-31T12:00:00.Z", "2027-01-31T12:00:00+0200", "tomorrow"],
)  # fmt: skip
def test_what_is_no_instant_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        durations.instant(text)
    with pytest.raises(PydanticCustomError):
        durations.check_instant(text)


BASE: dict[str, Any] = {
    "name": "a",
    "title": None,
    "description": "d",
    "input_schema": {"type": "object", "properties": {"x": {"type": "number"}, "y": {}}},
    "output_schema": None,
    "returns": None,
    "annotations": {},
}


def test_a_digest_does_not_depend_on_the_order_of_keys() -> None:
    turned = {"properties": {"y": {}, "x": {"type": "number"}}, "type": "object"}

    assert digest.definition_digest(**BASE) == digest.definition_digest(**{**BASE, "input_schema": turned})


@pytest.mark.parametrize(
    "change",
    [
        {"name": "b"}, {"title": "A"}, {"description": "D"}, {"input_schema": {}}, {"output_schema": {}},
        {"returns": ""}, {"annotations": {"readOnlyHint": False}}, {"server": "s"}, {"tags": ("t",)},
        {"examples": ("e",)},
    ],
)  # fmt: skip
def test_a_digest_changes_with_everything_a_model_reads(change: dict[str, Any]) -> None:
    assert digest.definition_digest(**BASE) != digest.definition_digest(**{**BASE, **change})


def test_a_digest_stays_the_same_from_release_to_release() -> None:
    golden = "sha256:4869d2668c62ef6c3f1a76327f52c5d6ee1457908173f23c76129127be24b4bb"

    assert digest.definition_digest(**BASE) == golden


@pytest.mark.parametrize(
    ("written", "read_back"),
    [(1.0, 1), (-0.0, 0), (1e16, 10000000000000000), (2**64, 18446744073709552000),
     (1.2345678901234567e20, 123456789012345670000), (0.1, 0.1), (1e21, 1e21)],
)  # fmt: skip
def test_a_number_has_one_form_before_and_after_the_api_server(written: float, read_back: float) -> None:
    assert digest.canonical({"a": [written]}) == digest.canonical({"a": [read_back]})


def test_true_is_no_number() -> None:
    assert digest.canonical([True, 1, 1.0]) == b"[true,1,1]"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", 10**400])
def test_what_json_cannot_carry_has_no_digest(value: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        digest.canonical({"a": value})


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
                    | st.text(st.characters(exclude_categories=["Cs"])),
                    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])),
                                                                    inner)))  # fmt: skip
def test_a_canonical_form_reads_back_to_itself(value: Any) -> None:
    once = digest.canonical(value)

    assert digest.canonical(json.loads(once)) == once


def test_the_route_digest_ignores_the_order_of_scopes_and_nothing_else() -> None:
    backend = {"url": "http://a"}
    one = digest.route_digest(backend=backend, scopes=("a", "b"), scope_match="Any")

    assert one == digest.route_digest(backend=backend, scopes=("b", "a"), scope_match="Any")
    assert one != digest.route_digest(backend=backend, scopes=("a", "b"), scope_match="All")
    assert one != digest.route_digest(backend=None, scopes=("a", "b"), scope_match="Any")
    assert one != digest.route_digest(backend=backend, scopes=("a",), scope_match="Any")


def test_a_condition_keeps_its_transition_time_while_its_status_stays() -> None:
    old = condition("Ready", False, ConditionReason.NOT_ACCEPTED, generation=1, now=1_000.0)

    same = condition("Ready", False, ConditionReason.NOT_INDEXED, generation=2, now=2_000.0)
    turned = condition("Ready", True, ConditionReason.READY, generation=2, now=2_000.0)

    (kept,), (moved,) = merge([old], [same]), merge([old], [turned])
    assert kept.last_transition_time == old.last_transition_time == "1970-01-01T00:16:40Z"
    assert (kept.reason, kept.observed_generation) == ("NotIndexed", 2)
    assert moved.last_transition_time == "1970-01-01T00:33:20Z"


def test_merging_the_same_observation_again_changes_nothing() -> None:
    first = merge([], [condition("Ready", None, ConditionReason.PENDING, generation=3, now=1_000.0)])

    assert (
        merge(first, [condition("Ready", None, ConditionReason.PENDING, generation=3, now=9_000.0)]) == first
    )


def test_conditions_that_are_no_longer_observed_go() -> None:
    old = [condition(t, True, ConditionReason.READY, generation=1, now=1.0) for t in ("Ready", "Gone")]

    assert [c.type for c in merge(old, old[:1])] == ["Ready"]


def test_every_reason_has_a_meaning_and_fits_the_kubernetes_format() -> None:
    assert set(MEANINGS) == set(ConditionReason)
    for reason in ConditionReason:
        made = condition("Ready", True, reason, generation=1, now=0.0)
        assert Condition.model_validate(made.model_dump(by_alias=True)) == made


FINE = {
    *(ConditionReason.READY, ConditionReason.ACCEPTED, ConditionReason.INDEXED, ConditionReason.VERIFIED),
    *(
        ConditionReason.IMPORTED,
        ConditionReason.APPROVED,
        ConditionReason.NOTHING_DRIFTED,
        ConditionReason.CONNECTED,
    ),
    *(
        ConditionReason.ENDPOINTS_READY,
        ConditionReason.PROPAGATED,
        ConditionReason.IN_FORCE,
        ConditionReason.MATCHES,
    ),
    *(ConditionReason.SUSPENDED, ConditionReason.NOT_SUSPENDED, ConditionReason.NOT_ROLLED_BACK),
    *(ConditionReason.DEPLOYED, ConditionReason.DISCOVERING, ConditionReason.NOTHING_RUNS),
    ConditionReason.FALLBACK_USABLE,
    *(ConditionReason.ACCESS_APPROVED, ConditionReason.ACCESS_REJECTED),
    *(ConditionReason.POWERS_ALONE, ConditionReason.NOTHING_ODD, ConditionReason.DENY_HOLDS),
}


def test_every_reason_says_what_to_do_unless_nothing_is_to_be_done() -> None:
    hinted = {*lint.HINTS, *suspicions.HINTS}
    assert set(NEXT_STEPS) == set(ConditionReason) - FINE - hinted

    made = condition("Ready", False, ConditionReason.SERVICE_MISSING, generation=1, now=0.0)
    assert made.message.endswith(NEXT_STEPS[ConditionReason.SERVICE_MISSING])


def test_a_long_message_is_cut() -> None:
    assert (
        len(condition("Ready", True, ConditionReason.INVALID, "x" * 5_000, generation=1, now=0).message)
        == MAX_MESSAGE
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("Grüße 東京 🚀", "Grüße 東京 🚀"),
        ("a\x1b[31mb", r"a\x1b[31mb"),
        ("a\u202eb", r"a\u202eb"),
        ("a\u200bb", r"a\u200bb"),
        ("a\nb", r"a\x0ab"),
        ("a\u2028b", r"a\u2028b"),
        ("a\U000e0041b", r"a\U000e0041b"),
        ("a\U000e0101b", r"a\U000e0101b"),
        ("a\u3164b", r"a\u3164b"),
        ("a\ufeffb", r"a\ufeffb"),
        ("❤\ufe0f", "❤\ufe0f"),
        ("\ud800", r"\ud800"),
    ],
)
def test_characters_that_move_or_hide_others_are_shown_escaped(text: str, shown: str) -> None:
    assert escape(text) == shown


def test_newlines_can_be_kept() -> None:
    assert escape("a\nb\x07", keep_newlines=True) == "a\nb\\x07"


def test_a_cut_is_marked() -> None:
    assert (truncate("abcdef", 4), truncate("abcd", 4), truncate("ab", 0)) == ("abc…", "abcd", "…")
