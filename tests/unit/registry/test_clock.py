"""Waiting by the machine's clock."""

import asyncio

import pytest

from toolcrib_registry import clock

pytestmark = pytest.mark.anyio


class Stepped(clock.SystemClock):
    """The machine's clock, set forward."""

    step = 0.0

    def now(self) -> float:
        return super().now() + self.step


async def test_a_wait_ends_soon_after_the_wall_clock_was_set_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    assert clock.LOOK_SECONDS <= 5, "this long a grant that is over by the clock may be in force"
    monkeypatch.setattr(clock, "LOOK_SECONDS", 0.05)
    stepped = Stepped()
    waiting = asyncio.create_task(stepped.sleep_until(stepped.now() + 3600))
    done, _ = await asyncio.wait([waiting], timeout=0.2)
    assert not done
    stepped.step = 3600
    async with asyncio.timeout(30):
        await waiting
