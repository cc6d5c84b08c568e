"""The pace of retries."""

from toolcrib_runner.follower import Pace


def test_retries_grow_up_to_a_ceiling_and_are_spread() -> None:
    pace = Pace(first_retry=1, longest_retry=8)
    assert [pace.retry(n, 1.0) for n in (1, 2, 3, 4, 5, 500)] == [1, 2, 4, 8, 8, 8]
    assert pace.retry(4, 0.0) == 4
