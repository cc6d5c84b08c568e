"""Who gets a candidate: by a hash alone, the same everywhere, and as many as were asked for."""

import hashlib

import pytest

from toolcrib.canary.assignment import BUCKETS, bucket, chosen

ISSUER = "https://kubernetes.default.svc"


def callers(number: int) -> list[str]:
    return [f"system:serviceaccount:team-{i % 97}:agent-{i}" for i in range(number)]


@pytest.mark.parametrize("share", [1, 10, 25, 50])
def test_a_share_is_kept_within_one_percent_of_100_000_callers(share: int) -> None:
    got = sum(chosen("uid-1", share, ISSUER, name) for name in callers(100_000))
    assert abs(got / 1_000 - share) <= 1


def test_a_place_is_the_hash_of_trial_issuer_and_subject_and_of_nothing_else() -> None:
    told = b"3:uid1:i1:s"
    assert bucket("uid", "i", "s") == int.from_bytes(hashlib.sha256(told).digest()) % 10_000
    assert BUCKETS == 10_000


def test_parts_do_not_run_together() -> None:
    assert len({bucket("a", "bc", "d"), bucket("ab", "c", "d"), bucket("a", "b", "cd")}) == 3


def test_another_trial_chooses_others() -> None:
    names = callers(2_000)
    first, second = ({n for n in names if chosen(uid, 50, ISSUER, n)} for uid in ("uid-1", "uid-2"))
    assert 350 < len(first & second) < 650


def test_raising_the_share_keeps_those_that_were_chosen() -> None:
    names = callers(2_000)
    few, many = ({n for n in names if chosen("uid-1", share, ISSUER, n)} for share in (10, 30))
    assert few < many
    assert not any(chosen("uid-1", 0, ISSUER, n) for n in names)
