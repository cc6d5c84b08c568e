"""Anchors are bounded, keep what proves most, and never take back what was anchored."""

from __future__ import annotations

import json

import pytest

from toolcrib.audit import anchors as audit_anchors
from toolcrib.audit.anchors import Anchor, AnchorsError, added, read, restored, thinned, write
from toolcrib.wire.publish import AuditHead

pytestmark = pytest.mark.guarantee

DAY = 86_400.0
NOW = 1_800_000_000.0


def head(seq: int, chain: str = "registry-0@a", made: str = "") -> AuditHead:
    return AuditHead(chain=chain, seq=seq, hash=(made or f"{seq:x}").rjust(64, "0"))


def test_a_document_gives_back_what_was_written() -> None:
    anchors, _ = added([], {"registry-0@a": head(1), "registry-1@b": head(5, "registry-1@b")}, NOW)
    assert read(write(anchors)) == anchors
    assert read("") == []
    for wrong in ("[]", "{}", "no", '{"chains": {"a": [[1]]}}'):
        with pytest.raises(AnchorsError):
            read(wrong)


SOUND = [1, "2026-01-01T00:00:00.000Z", "b" * 64]


@pytest.mark.parametrize(
    "entry",
    [
        [1, "2026-01-01T00:00:00", "b" * 64],
        [1, "2026-01-01T00:00:00+02:00", "b" * 64],
        [1, "2026-02-30T00:00:00Z", "b" * 64],
        [1, "\u0662026-01-01T00:00:00Z", "b" * 64],
        [1, "today", "b" * 64],
        [1, 5, "b" * 64],
        [float("inf"), *SOUND[1:]],
        [float("nan"), *SOUND[1:]],
        [1.0, *SOUND[1:]],
        [True, *SOUND[1:]],
        ["1", *SOUND[1:]],
        [0, *SOUND[1:]],
        [10**18, *SOUND[1:]],
        [1, SOUND[1], "b" * 63],
        [1, SOUND[1], "B" * 64],
        [1, SOUND[1], None],
        [1, SOUND[1]],
        [*SOUND, 1],
    ],
)
def test_one_entry_that_was_never_written_makes_a_document_unreadable(entry: list[object]) -> None:
    def document(chain: str, *entries: object) -> str:
        return json.dumps({"v": 1, "chains": {chain: entries}})

    assert thinned(read(document("registry-0@a", SOUND)), NOW)
    with pytest.raises(AnchorsError):
        read(document("registry-0@a", SOUND, entry))
    for chain in ("", "a b", "a\n", "a" * 401):
        with pytest.raises(AnchorsError):
            read(document(chain, SOUND))


def test_a_document_nested_without_end_or_with_endless_digits_is_unreadable() -> None:
    for text in ('{"v":1,"chains":' + "[" * 100_000, '{"v":1,"chains":{"a":[[' + "1" * 5000 + "]]}}"):
        with pytest.raises(AnchorsError):
            read(text)


def test_a_number_that_no_line_can_have_is_not_anchored_so_that_the_document_stays_readable() -> None:
    anchors, regressions = added(
        [], {"registry-0@a": head(10**18), "b": head(0, "b"), "c": head(3, "c")}, NOW
    )
    assert ([a.chain for a in anchors], regressions) == (["c"], [])
    assert read(write(anchors)) == anchors


def test_the_last_hour_is_kept_whole_and_older_ones_by_the_hour_for_thirty_days() -> None:
    anchors, seq = [], 0
    for minute in range(60 * 24 * 32):
        if minute % 10 == 0:
            seq += 1
            anchors, none = added(anchors, {"registry-0@a": head(seq)}, NOW + minute * 60)
            assert none == []
    end = NOW + 60 * (60 * 24 * 32 - 1)
    kept = thinned(anchors, end)
    fresh = [a for a in kept if a.seq > seq - 6]
    assert len(fresh) == 6
    assert kept[-1].seq == seq
    assert 30 * 24 - 2 <= len(kept) - 6 <= 30 * 24 + 1
    assert thinned(kept, end) == kept


def test_the_last_anchor_of_every_chain_stays_when_all_others_have_gone() -> None:
    anchors: list[audit_anchors.Anchor] = []
    for n in range(50):
        for seq in (1, 2):
            anchors, _ = added(
                anchors, {f"registry-0@{n:03}": head(seq, f"registry-0@{n:03}")}, NOW + n * DAY
            )
    kept = thinned(anchors, NOW + 400 * DAY)
    assert [(a.chain, a.seq) for a in kept] == [(f"registry-0@{n:03}", 2) for n in range(50)]


def test_many_replicas_fit_into_a_configmap_and_lose_the_oldest_between() -> None:
    anchors = []
    for n in range(20):
        chain = f"registry-{n:02}@20270115T080000.000000Z-0011"
        anchors += [
            audit_anchors.Anchor(chain, hour, audit_anchors.timestamp(NOW + hour * 3600), f"{hour:064x}")
            for hour in range(30 * 24)
        ]
    end = NOW + 30 * DAY
    kept = thinned(anchors, end)
    assert 600_000 < len(write(kept)) <= audit_anchors.MOST_BYTES
    assert {a.chain for a in kept} == {a.chain for a in anchors}
    assert {(a.chain, a.seq) for a in kept} >= {(a.chain, a.seq) for a in anchors if a.seq > 700}
    tiny = thinned(anchors, end, most=1000)
    assert len(write(tiny)) <= 1000


def test_a_head_that_goes_back_or_changes_is_said_and_not_taken_in() -> None:
    anchors, _ = added([], {"registry-0@a": head(10)}, NOW)
    same, nothing = added(anchors, {"registry-0@a": head(10)}, NOW + 60)
    assert (same, nothing) == (anchors, [])
    for reported, words in (
        (head(9), "the end is seq 9, but was seq 10"),
        (head(10, made="f"), "another hash"),
    ):
        after, (found,) = added(anchors, {"registry-0@a": reported}, NOW + 60)
        assert after == anchors
        assert words in str(found)


def test_what_a_document_lacks_of_what_is_remembered_is_put_back_and_what_others_added_stays() -> None:
    mine, _ = added([], {"registry-0@a": head(1), "registry-1@b": head(5, "registry-1@b")}, NOW)
    other = Anchor("registry-2@c", 7, audit_anchors.timestamp(NOW), "c" * 64)
    assert restored([*mine, other], mine, NOW) == ([*mine, other], [])
    assert restored([other], mine, NOW) == ([*mine, other], mine)
    altered = mine[0]._replace(hash="d" * 64)
    assert restored([altered, mine[1]], mine, NOW) == (mine, [mine[0]])
    # what another leader has thinned out by now is not missed
    old, _ = added(added(mine, {"registry-0@a": head(2)}, NOW + 60)[0], {"registry-0@a": head(3)}, NOW + 120)
    later = thinned(old, NOW + 7200)
    assert later != old
    assert restored(later, old, NOW + 7200) == (later, [])
