"""The clock that decisions are taken by: real in the product, moved by hand in tests."""

from __future__ import annotations

import asyncio
import time


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    async def sleep_until(self, moment: float) -> None:
        """Return at `moment` or later; never, for infinity. A long wait looks at the clock again every minute."""
        while (left := moment - self.now()) > 0:  # noqa: ASYNC110 - it is time that is waited for
            await asyncio.sleep(min(left, 60.0))
