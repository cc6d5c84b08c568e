"""How long an answer asks its sender to wait."""

import pytest

from toolcrib_registry.outbound.messages import retry_after

NOON = 1_700_049_600.0  # Wed, 15 Nov 2023 12:00:00 GMT


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("120", 120),
        ("99999999", 3_600),
        ("Wed, 15 Nov 2023 12:00:30 GMT", 30),
        ("Wed, 15 Nov 2023 11:00:00 GMT", 0),
        ("Thu, 16 Nov 2023 12:00:00 GMT", 3_600),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("٣", None),
        ("9" * 5_000, None),
        ("Wed, 99 Nov 2023 12:00:30 GMT", None),
        ("", None),
    ],
)
def test_it_is_seconds_or_a_date_and_an_hour_at_most(text: str, seconds: int | None) -> None:
    assert retry_after({"retry-after": text}, NOON) == seconds


def test_an_answer_may_not_say() -> None:
    assert retry_after({}) is None
