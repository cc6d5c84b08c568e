"""When a server is asked again."""

import pytest

from toolcrib.wire.imports import ServerOutcome
from toolcrib_registry.importing import pacing


@pytest.mark.parametrize(
    ("every", "ttl", "wait"),
    [
        (300, None, 300),
        (300, 0, 300),
        (300, 60_000, 60),
        (300, 1, 5),
        (300, 10**12, 300),
        (2, 1, 2),
    ],
)
def test_a_list_is_read_again_when_it_is_said_to_be_old_and_never_later_than_is_wanted(
    every: float, ttl: int | None, wait: float
) -> None:
    assert pacing.after_list(every, ttl) == wait


def test_retries_get_rarer_up_to_half_a_minute_and_never_rarer_than_looks() -> None:
    def waits(every: float) -> list[float]:
        return [
            pacing.after_failure(ServerOutcome.UNREACHABLE, every, n, None, 0.0) for n in (1, 2, 3, 5, 9, 999)
        ]

    assert waits(300) == [1, 2, 4, 16, 30, 30]
    assert waits(3) == [1, 2, 3, 3, 3, 3]


@pytest.mark.parametrize("outcome", [o for o in ServerOutcome if o.asked])
def test_no_server_is_asked_before_the_time_that_it_names(outcome: ServerOutcome) -> None:
    assert pacing.after_failure(outcome, 60, 1, 3_600, 0.0) == 3_600


def test_what_the_registry_lacks_is_looked_for_every_second() -> None:
    for outcome in ServerOutcome:
        if not outcome.asked:
            assert pacing.after_failure(outcome, 300, 9, None, 1.0) == 1.0


def test_what_a_server_cannot_change_soon_is_looked_at_at_intervals() -> None:
    for outcome in (ServerOutcome.TRANSPORT_UNSUPPORTED, ServerOutcome.TOO_LARGE):
        assert pacing.after_failure(outcome, 300, 1, None, 0.0) == 300


def test_retries_of_many_servers_drift_apart() -> None:
    first, last = (pacing.after_failure(ServerOutcome.UNREACHABLE, 300, 9, None, d) for d in (0.0, 1.0))
    assert last == pytest.approx(first * 1.1)


class TestAllowance:
    def test_some_notices_cause_looks_at_once_and_then_one_every_two_seconds(self) -> None:
        now = 0.0
        allowance = pacing.Allowance(lambda: now)
        for _ in range(20):
            assert allowance.wait() == 0
            allowance.spend(0)
        assert allowance.wait() == 2.0
        now = 2.0
        assert allowance.wait() == 0
        allowance.spend(0)
        assert allowance.wait() == 2.0

    def test_large_lists_cost_more(self) -> None:
        now = 0.0
        allowance = pacing.Allowance(lambda: now)
        allowance.spend(16 << 20)
        assert allowance.wait() > 60

    def test_rest_gives_no_more_than_the_first_allowance(self) -> None:
        now = 0.0
        allowance = pacing.Allowance(lambda: now)
        now = 1e9
        for _ in range(20):
            allowance.spend(0)
        assert allowance.wait() > 0
