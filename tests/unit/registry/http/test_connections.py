"""An answer's head and the first of its body are one write."""

import asyncio
from typing import Any

import pytest

from toolcrib_registry.http.connections import _JoinedWrites

pytestmark = pytest.mark.anyio


class Written:
    """A transport that keeps its writes."""

    def __init__(self) -> None:
        self.all: list[bytes | str] = []

    def write(self, data: bytes) -> None:
        self.all.append(data)

    def close(self) -> None:
        self.all.append("closed")

    def is_closing(self) -> bool:
        return "closed" in self.all


def joined() -> tuple[Written, _JoinedWrites]:
    written: Any = Written()
    made = _JoinedWrites(written, asyncio.get_running_loop())
    made.expect_head()
    return written, made


async def test_head_and_body_go_out_together() -> None:
    written, answer = joined()

    answer.write(b"head ")
    answer.write(b"body")
    answer.write(b"more")
    await asyncio.sleep(0)

    assert written.all == [b"head body", b"more"]


async def test_a_head_whose_body_is_still_to_come_does_not_wait_for_it() -> None:
    written, answer = joined()

    answer.write(b"head")
    assert written.all == []
    await asyncio.sleep(0)

    assert written.all == [b"head"]
    answer.write(b"body")
    assert written.all == [b"head", b"body"]


async def test_a_head_without_a_body_goes_out_before_the_end() -> None:
    written, answer = joined()
    answer.write(b"head")
    answer.close()
    assert written.all == [b"head", "closed"]

    written, answer = joined()
    answer.write(b"first")
    answer.expect_head()
    answer.write(b"second")
    answer.flush()
    assert written.all == [b"first", b"second"]
