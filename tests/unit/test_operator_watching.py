"""What is known to be complete, and since when: the account behind heartbeats."""

import asyncio

import pytest

from operator_harness import until
from toolcrib_operator.errors import NotListable
from toolcrib_operator.ports import Listing
from toolcrib_operator.settings import WatchSettings
from toolcrib_operator.watching import Watching
from toolcrib_operator.world import World

pytestmark = pytest.mark.anyio


class Reader:
    """A cluster without objects, of which some kinds cannot be listed."""

    def __init__(self) -> None:
        self.refused: set[str] = set()

    async def list(self, kind: str) -> Listing:
        if kind in self.refused:
            raise NotListable(f"{kind} cannot be listed")
        return Listing([], "1")

    async def versions(self, kind: str) -> dict[str, str]:
        return {o["metadata"]["name"]: "1" for o in (await self.list(kind)).objects}


async def test_one_silent_kind_that_cannot_be_proven_makes_the_view_old() -> None:
    clock, reader = [100.0], Reader()
    settings = WatchSettings(prove_after=0.02, unproven_after=30.0)
    watching = Watching(
        World(("Tool", "Namespace")), reader, kinds=("Tool", "Namespace"), settings=settings,
        monotonic=lambda: clock[0],
    )  # fmt: skip
    assert not watching.proven()
    stop = asyncio.Event()
    assert await watching.list_all(stop)
    assert (watching.proven(), watching.age()) == (True, 0.0)
    reader.refused.add("Namespace")
    clock[0] += 40
    watching.heard("Tool")
    assert (watching.proven(), watching.age()) == (False, 40.0)
    task = asyncio.create_task(watching.run(stop))
    await until(lambda: watching.problems)
    assert watching.age() == 40.0
    reader.refused.clear()
    await until(lambda: not watching.problems)
    assert (watching.proven(), watching.age()) == (True, 0.0)
    stop.set()
    await task
