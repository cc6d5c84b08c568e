"""Names asked of real name servers on loopback: TTLs, servers that are late, fail, lie or say too much."""

import asyncio
import gc
import os
import random
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from evil_upstream import response, upstream
from name_server import AAAA, NameServer, Question, Record, name_server
from toolcrib.wire.backends import PublishedBackend
from toolcrib_registry.adapters.outbound import cares
from toolcrib_registry.adapters.outbound.cares import MOST_ADDRESSES, CaresResolver
from toolcrib_registry.adapters.outbound.dns_cache import REFUSED_SECONDS, Absent, Names, NotFound
from toolcrib_registry.adapters.outbound.http import OutboundHttp
from toolcrib_registry.outbound.errors import EgressRefused
from toolcrib_registry.outbound.guard import EgressPolicy, target
from toolcrib_registry.outbound.messages import OutboundRequest
from waiting import until

pytestmark = pytest.mark.anyio
EVENTUALLY = 30


@pytest.fixture(params=[True, False], ids=["uvloop", "asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": request.param}


@pytest.fixture
def server() -> Iterator[NameServer]:
    with name_server() as running:
        yield running


@pytest.fixture
async def names(server: NameServer) -> AsyncIterator[Names]:
    looked = Names(asking(server))
    yield looked
    await looked.close()


def asking(*servers: NameServer) -> CaresResolver:
    return CaresResolver([f"127.0.0.1:{one.port}" for one in servers])


@pytest.mark.parametrize(
    ("ttl", "kept"), [(1, 1), (7, 7), (30, 30), (300, 30), (3600, 30), (2**31, 30), (2**32 - 1, 30)]
)
async def test_an_answer_is_kept_for_its_ttl_and_30_seconds_at_most(
    server: NameServer, ttl: int, kept: float
) -> None:
    now = [0.0]
    looked = Names(asking(server), clock=lambda: now[0])
    server.add("a.example", "192.0.2.1", ttl=ttl)
    assert await looked("a.example.") == ["192.0.2.1"]
    server.add("a.example", "192.0.2.2", ttl=ttl)
    now[0] = kept - 0.01
    assert await looked("a.example.") == ["192.0.2.1"]
    assert server.names() == ["a.example"]
    now[0] = kept
    assert await looked("a.example.") == ["192.0.2.2"], "the server was asked, not a cache"
    assert server.names() == ["a.example"] * 2


async def test_an_answer_with_a_ttl_of_0_serves_those_who_waited_alone(
    server: NameServer, names: Names
) -> None:
    server.add("a.example", "192.0.2.1", ttl=0)
    assert await asyncio.gather(*(names("a.example.") for _ in range(16))) == [["192.0.2.1"]] * 16
    assert server.names() == ["a.example"]
    await names("a.example.")
    assert server.names() == ["a.example"] * 2


@pytest.mark.parametrize("shortest", ["alias", "first", "second", "v6"])
async def test_the_shortest_ttl_on_the_way_to_the_addresses_counts(server: NameServer, shortest: str) -> None:
    def record(part: str, value: str) -> Record:
        return Record(value, 2 if part == shortest else 20)

    server.records["a.example"] = [record("alias", "b.example")]
    server.records["b.example"] = [
        record("first", "192.0.2.1"),
        record("second", "192.0.2.2"),
        record("v6", "2001:db8::1"),
    ]
    answer = await asking(server)("a.example.")
    assert answer.ttl == 2
    assert sorted(answer.addresses) == ["192.0.2.1", "192.0.2.2", "2001:db8::1"]


async def test_lookups_need_no_second_try_and_leave_nothing_behind(server: NameServer) -> None:
    server.add("a.example", "192.0.2.1")
    resolve = asking(server)
    gc.collect()
    gc.disable()
    try:
        for _ in range(100):
            assert (await resolve("a.example.")).addresses == ("192.0.2.1",)
            with pytest.raises(Absent):
                await resolve("absent.example.")
        # pycares frees channels in a thread of its own
        await until(lambda: sum(type(one).__name__ == "_Lookup" for one in gc.get_objects()) < 10)
    finally:
        gc.enable()
    assert server.names() == ["a.example", "absent.example"] * 100


async def test_a_name_that_does_not_exist_is_asked_for_once(server: NameServer, names: Names) -> None:
    for name in ("absent.example.", "x" * 64 + ".example.", "a..example.", "hidden.onion."):
        with pytest.raises(NotFound, match="does not exist"):
            await names(name)
    assert server.names() == ["absent.example"]


async def test_a_name_that_was_absent_is_found_as_soon_as_it_is_asked_for_again(server: NameServer) -> None:
    now = [0.0]
    looked = Names(asking(server), clock=lambda: now[0])
    server.records["a.example"] = []
    with pytest.raises(NotFound):
        await looked("a.example.")
    server.add("a.example", "192.0.2.1")
    now[0] = REFUSED_SECONDS
    assert await looked("a.example.") == ["192.0.2.1"]


async def test_a_server_that_fails_is_asked_once_more(server: NameServer, names: Names) -> None:
    server.failing = True
    with pytest.raises(NotFound, match="failed"):
        await names("a.example.")
    assert server.names() == ["a.example"] * 2


async def test_an_address_is_found_though_the_other_family_is_never_answered(
    server: NameServer, names: Names
) -> None:
    server.add("a.example", "192.0.2.1")
    lost: list[Question] = []

    def first_aaaa(question: Question) -> bool:
        if question.kind == AAAA and not lost:
            lost.append(question)
            return True
        return False

    server.lose = first_aaaa
    assert await names("a.example.") == ["192.0.2.1"]


async def test_an_answer_to_the_first_question_counts_after_the_second_was_sent(server: NameServer) -> None:
    server.add("a.example", "192.0.2.1")
    server.hold = lambda question: True
    looked = Names(asking(server), again=0.01, seconds=EVENTUALLY)
    waiting = asyncio.create_task(looked("a.example."))
    await until(lambda: len(server.asked) == 2, interval=0.001)  # before the second try
    server.lose, server.hold = (lambda question: True), (lambda question: False)
    await until(lambda: len(server.asked) == 4)
    server.release()
    async with asyncio.timeout(EVENTUALLY):
        assert await waiting == ["192.0.2.1"]
    await looked.close()


async def test_an_answer_that_is_too_late_serves_the_next_call(server: NameServer) -> None:
    server.add("a.example", "192.0.2.1")
    server.hold = lambda question: True
    looked = Names(asking(server), again=0.01, seconds=0.02)
    with pytest.raises(NotFound, match="did not respond"):
        await looked("a.example.")
    await until(lambda: len(server.asked) >= 2)
    asked = len(server.asked)
    server.release()
    await until(lambda: looked._fresh("a.example.").addresses != ())  # type: ignore[union-attr]
    assert await looked("a.example.") == ["192.0.2.1"]
    assert len(server.asked) <= asked + 2
    await looked.close()


async def test_the_second_try_asks_the_next_server(server: NameServer) -> None:
    with name_server() as dead:
        dead.lose = lambda question: True
        server.add("a.example", "192.0.2.1")
        looked = Names(asking(dead, server), again=0.01, seconds=EVENTUALLY)
        async with asyncio.timeout(EVENTUALLY):
            assert await looked("a.example.") == ["192.0.2.1"]
        assert dead.names() == server.names() == ["a.example"]
        await looked.close()


async def test_names_that_never_answer_leave_room_to_those_that_did(
    server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cares, "LOOKUPS", 8)
    monkeypatch.setattr(cares, "UNPROVEN", 4)
    server.add("good.example", "192.0.2.1")
    server.add("new.example", "192.0.2.1")
    server.lose = lambda question: question.name.startswith("silent")
    resolve = asking(server)
    await resolve("good.example.")
    before = descriptors()
    waiting = [asyncio.create_task(resolve(f"silent-{number}.example.")) for number in range(100)]
    await until(lambda: sum(one.done() for one in waiting) == 96)
    with pytest.raises(NotFound, match="too many"):
        await resolve("new.example.")
    assert (await resolve("good.example.")).addresses == ("192.0.2.1",)
    for one in waiting:
        one.cancel()
    assert all(isinstance(e, BaseException) for e in await asyncio.gather(*waiting, return_exceptions=True))
    assert descriptors() <= before, "a lookup that is given up keeps no socket"
    assert (await resolve("new.example.")).addresses == ("192.0.2.1",)


async def test_names_of_one_namespace_that_never_answer_hold_up_no_names_of_another(
    server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cares, "UNPROVEN", 8)
    server.add("new.example", "192.0.2.1")
    server.lose = lambda question: question.name.startswith("silent")
    resolve = asking(server)

    def ask(owner: str, name: str) -> asyncio.Task[Any]:
        cares.OWNER.set(owner)
        return asyncio.create_task(resolve(name))

    waiting = [ask("evil", f"silent-{number}.example.") for number in range(20)]
    await until(lambda: sum(one.done() for one in waiting) == 12)
    assert (await ask("team", "new.example.")).addresses == ("192.0.2.1",)
    others = [ask(f"other-{number}", f"silent-{number}.example.") for number in range(7)]
    await until(lambda: sum(one.done() for one in waiting) == 19)
    assert not any(one.done() for one in others), "one lookup of each is left"
    with pytest.raises(NotFound, match="too many"):
        await ask("late", "another.example.")
    for one in (*waiting, *others):
        one.cancel()
    await asyncio.gather(*waiting, *others, return_exceptions=True)
    assert not resolve._under_way
    assert not resolve._unproven


def descriptors() -> int:
    return len(os.listdir("/dev/fd"))


async def test_a_lookup_ends_by_itself(server: NameServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cares, "LATE_SECONDS", 0.05)
    server.lose = lambda question: True
    resolve = asking(server)
    async with asyncio.timeout(EVENTUALLY):
        with pytest.raises(NotFound, match="did not respond"):
            await resolve("a.example.")
    assert not resolve._under_way


async def test_a_name_with_very_many_addresses_is_refused(server: NameServer, names: Names) -> None:
    addresses = [f"192.0.{number // 250}.{number % 250}" for number in range(MOST_ADDRESSES + 1)]
    server.add("few.example", *addresses[:MOST_ADDRESSES])
    server.add("many.example", *addresses)
    assert len(await names("few.example.")) == MOST_ADDRESSES
    with pytest.raises(NotFound, match="more than 256 addresses"):
        await names("many.example.")


@pytest.mark.parametrize("seed", range(20))
async def test_broken_answers_are_no_answer_and_harm_no_other_lookup(server: NameServer, seed: int) -> None:
    chance = random.Random(seed)
    server.add("a.example", "b.example")
    server.add("b.example", "192.0.2.1", "2001:db8::1")
    server.add("good.example", "192.0.2.9")

    def spoil(packet: bytes) -> bytes:
        if b"good" in packet:
            return packet
        broken = bytearray(packet[: chance.randint(0, len(packet))] or b"\0")
        for _ in range(chance.randint(0, 8)):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        return bytes(broken) + chance.randbytes(chance.choice([0, 0, 40, 1000]))

    server.spoil = spoil
    resolve = asking(server)
    looked = Names(resolve, again=0.02, seconds=0.04)
    asked = [looked(f"{'a' if number % 2 else 'b'}.example.") for number in range(4)]
    patient = Names(resolve, seconds=EVENTUALLY)
    found = await asyncio.gather(*asked, patient("good.example."), return_exceptions=True)
    assert all(isinstance(one, list | NotFound) for one in found)
    assert found[-1] == ["192.0.2.9"]
    await looked.close()
    await patient.close()
    assert not resolve._under_way


async def test_an_address_that_a_name_turns_to_is_judged_when_its_ttl_has_passed(server: NameServer) -> None:
    policy = EgressPolicy(allow=("*",))
    server.add("tools.example.test", "192.0.2.1", ttl=0)
    async with upstream(lambda _: response()) as inside:
        async with OutboundHttp(policy, resolve=asking(server)) as outbound:
            url = f"http://tools.example.test:{inside.port}/"
            place = target(PublishedBackend(url=url), namespace="team", policy=policy)
            for address in ("127.0.0.1", "::1", "::ffff:127.0.0.1", "10.0.0.1", "169.254.169.254"):
                server.add("tools.example.test", address, ttl=0)
                with pytest.raises(EgressRefused):
                    await outbound.send(OutboundRequest(target=place, method="POST", path="/", body=b"{}"))
        assert inside.accepts == 0


async def test_names_of_this_machine_are_asked_of_nobody(server: NameServer) -> None:
    resolve = asking(server)
    assert set((await resolve("localhost")).addresses) <= {"127.0.0.1", "::1"}
    assert set((await resolve("inner.localhost")).addresses) <= {"127.0.0.1", "::1"}
    with pytest.raises(Absent):
        await resolve("bücher..example")
    assert server.asked == []
