"""Compartments of calls: slow ones leave room for others, who waits is let in by turns, nothing waits for ever."""

import asyncio
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry_harness import binding, tool
from toolcrib.identity import Identity, ScopesPolicy
from toolcrib.wire.backends import PublishedBackend
from toolcrib.wire.publish import PublishedBinding, PublishedTool
from toolcrib_registry.calls import bulkheads
from toolcrib_registry.calls.bulkheads import EACH, TOGETHER, Bulkheads, backend_of
from toolcrib_registry.calls.errors import BackendBusy

pytestmark = pytest.mark.anyio
QUARTER = EACH // 4
LONG = 600.0


def at(host: str) -> PublishedTool:
    return tool("any", backend=PublishedBackend(url=f"http://{host}/"))


def of(name: str) -> PublishedBinding:
    return binding("bot", name=name)


def identity(subject: str) -> Identity:
    return Identity(
        issuer="https://issuer.test", subject=subject, expires_at=2e9, policy=ScopesPolicy.BINDINGS
    )


class Calls:
    """Calls that are in progress until they are told to end."""

    def __init__(self, made: Bulkheads) -> None:
        self.bulkheads = made
        self.inside: Counter[tuple[str, str, str]] = Counter()
        self.started: Counter[tuple[str, str, str]] = Counter()
        self.tasks: list[asyncio.Task[None]] = []
        self.ends: list[tuple[tuple[str, str, str], asyncio.Event]] = []

    async def begin(self, number: int, backend: str = "a", grant: str = "b", caller: str = "c") -> int:
        """Begin so many; how many of this kind are in progress then."""
        for _ in range(number):
            self.tasks.append(asyncio.create_task(self._call((backend, grant, caller))))
        await settled()
        return self.inside[backend, grant, caller]

    async def end(self, number: int, *of: str) -> None:
        """End so many of those in progress, at random or of one kind."""
        chosen = [pair for pair in self.ends if not of or pair[0][: len(of)] == of][:number]
        for pair in chosen:
            self.ends.remove(pair)
            pair[1].set()
        await settled()

    async def end_all(self) -> None:
        while self.ends:
            await self.end(len(self.ends))
        await asyncio.gather(*self.tasks)

    async def _call(self, path: tuple[str, str, str]) -> None:
        backend, grant, caller = path
        async with self.bulkheads.room(at(backend), of(grant), identity(caller)):
            self.inside[path] += 1
            self.started[path] += 1
            event = asyncio.Event()
            self.ends.append((path, event))
            await event.wait()
            self.inside[path] -= 1


async def settled() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


async def test_one_caller_of_a_slow_backend_holds_a_quarter_of_it() -> None:
    calls = Calls(Bulkheads(seconds=LONG))
    assert await calls.begin(QUARTER + 100) == QUARTER
    assert calls.bulkheads.waiting == 100
    await calls.end_all()
    assert calls.bulkheads.in_progress == calls.bulkheads.waiting == 0


@pytest.mark.parametrize("other", [("a", "b", "d"), ("a", "e", "c"), ("f", "b", "c")])
async def test_another_caller_binding_or_backend_has_room_beside_it(other: tuple[str, str, str]) -> None:
    calls = Calls(Bulkheads(seconds=LONG))
    await calls.begin(QUARTER * 3)
    assert await calls.begin(8, *other) == 8
    await calls.end_all()


async def test_a_binding_with_very_many_callers_leaves_half_of_a_backend() -> None:
    calls = Calls(Bulkheads(seconds=LONG))
    for number in range(200):
        await calls.begin(4, caller=f"caller-{number}")
    held = calls.inside.total()
    assert held <= EACH // 2
    assert await calls.begin(8, grant="another") == 8
    await calls.end_all()


async def test_slow_backends_leave_room_for_another() -> None:
    calls = Calls(Bulkheads(seconds=LONG))
    for number in range(6):
        for grant in ("w", "x", "y", "z"):
            await calls.begin(QUARTER, backend=f"backend-{number}", grant=grant)
    assert calls.inside.total() < TOGETHER
    assert await calls.begin(8, backend="quick") == 8
    await calls.end_all()


async def test_callers_that_wait_take_turns() -> None:
    calls = Calls(Bulkheads(each=4, seconds=LONG))  # two calls of one binding, one of each caller
    await calls.begin(1, caller="stays")
    await calls.begin(9, caller="first")
    await calls.begin(9, caller="second")
    assert calls.started == {("a", "b", "stays"): 1, ("a", "b", "first"): 1}
    for _ in range(8):
        await calls.end(1, "a", "b", "first" if calls.inside["a", "b", "first"] else "second")
    assert calls.started["a", "b", "second"] >= 4
    assert calls.started["a", "b", "first"] >= 4
    await calls.end_all()


async def test_a_call_that_waits_too_long_is_refused_and_told_when_to_come_again() -> None:
    made = Bulkheads(each=4, seconds=0.01)
    calls = Calls(made)
    await calls.begin(1)
    async with asyncio.timeout(30):
        with pytest.raises(BackendBusy, match=r"within 0\.01 s") as caught:
            async with made.room(at("a"), of("b"), identity("c")):
                pytest.fail("let in")
    assert (caught.value.code, caught.value.retry_after) == ("backend_busy", 1)
    assert made.waiting == 0
    await calls.end_all()


@pytest.mark.parametrize("bound", ["WAIT_EACH", "WAIT_TOGETHER"])
async def test_calls_that_wait_are_bounded(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulkheads, bound, 3)
    made = Bulkheads(each=4, seconds=LONG)
    calls = Calls(made)
    await calls.begin(4)
    assert made.waiting == 3
    with pytest.raises(BackendBusy, match="too many calls are waiting"):
        async with made.room(at("a"), of("b"), identity("c")):
            pytest.fail("let in")
    await calls.end_all()


async def test_a_call_that_is_given_up_keeps_no_place() -> None:
    made = Bulkheads(each=4, seconds=LONG)
    calls = Calls(made)
    await calls.begin(4)
    waiting = calls.tasks[1:]
    waiting[0].cancel()
    await settled()
    assert made.waiting == 2
    calls.ends.pop()[1].set()  # the place goes to the next, which is given up in that moment
    await asyncio.sleep(0)
    waiting[1].cancel()
    await settled()
    assert made.in_progress == 1
    while calls.ends:
        await calls.end(1)
    await asyncio.gather(*calls.tasks, return_exceptions=True)
    assert made.in_progress == made.waiting == 0


@given(seed=st.integers(0, 2**32), together=st.integers(8, 40), each=st.integers(4, 40))
def test_room_is_never_exceeded_nor_left_unused_while_somebody_waits_for_it(
    seed: int, together: int, each: int
) -> None:
    async def run() -> None:
        draw = random.Random(seed)
        made = Bulkheads(together=together, each=each, seconds=LONG)
        calls = Calls(made)
        for _ in range(30):
            if draw.random() < 0.6:
                await calls.begin(
                    draw.randint(1, 12), draw.choice("ab"), draw.choice("gh"), draw.choice("xyz")
                )
            else:
                draw.shuffle(calls.ends)
                await calls.end(draw.randint(1, 6))
            held = made._shares.held
            assert made.in_progress == calls.inside.total() <= together
            assert all(held.get((b,), 0) <= each for b in "ab")
            waiting = [path for queues in made._queues.values() for path in queues]
            assert all(made._shares.full(path) is not None for path in waiting)
        await calls.end_all()
        assert not made._shares.held
        assert not made._queues

    asyncio.run(run())


@pytest.mark.parametrize(
    ("backend", "shared"),
    [
        (PublishedBackend(url="https://API.example.com/a?b=c"), "api.example.com:443"),
        (PublishedBackend(url="http://api.example.com:8080/a"), "api.example.com:8080"),
        (PublishedBackend(service_namespace="n", service_name="s", service_port=80), "n/s:80"),
        (PublishedBackend(url="http://127.1/"), None),
        (PublishedBackend(), None),
        (None, None),
    ],
)
def test_tools_share_a_backend_by_its_place(backend: PublishedBackend | None, shared: str | None) -> None:
    assert backend_of(tool("any", backend=backend)) == shared
