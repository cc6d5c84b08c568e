"""Looking names up: once for all who wait, kept for seconds, given up after one; with resolvers that are told what to do."""

import asyncio
from collections.abc import Awaitable
from ipaddress import ip_address

import pytest

from evil_upstream import response, upstream
from toolcrib.wire.backends import PublishedBackend
from toolcrib_registry.adapters.outbound import dns_cache
from toolcrib_registry.adapters.outbound.dns_cache import (
    KEEP_SECONDS,
    REFUSED_SECONDS,
    TRIES,
    Absent,
    Answer,
    Names,
    NotFound,
)
from toolcrib_registry.adapters.outbound.http import OutboundHttp
from toolcrib_registry.outbound.errors import EgressRefused
from toolcrib_registry.outbound.guard import EgressPolicy, target
from toolcrib_registry.outbound.messages import OutboundRequest
from waiting import until

pytestmark = pytest.mark.anyio

ABSENT = Absent("the name has no address")
FOR_NOW = NotFound("not now")


def found(*addresses: str, ttl: float = 3600) -> Answer:
    return Answer(addresses, ttl)


class Resolver:
    """Answers each try with the next of what it was given: addresses, an error, or nothing until `late` is set."""

    def __init__(self, *answers: Answer | Exception | asyncio.Future[Answer]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Answer:
        self.asked.append(host)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, asyncio.Future):
            return await asyncio.shield(answer)
        await asyncio.sleep(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def never() -> asyncio.Future[Answer]:
    return asyncio.get_running_loop().create_future()


async def refusal(asked: Awaitable[list[str]]) -> str:
    with pytest.raises(NotFound) as caught:
        await asked
    return str(caught.value)


async def test_one_lookup_serves_all_who_wait_for_a_name() -> None:
    resolver = Resolver(found("192.0.2.1"))
    looked = Names(resolver)
    async with asyncio.timeout(30):
        assert await asyncio.gather(*(looked("a.example.") for _ in range(100))) == [["192.0.2.1"]] * 100
    assert resolver.asked == ["a.example."]
    await asyncio.gather(*(looked("b.example.") for _ in range(3)))
    assert resolver.asked == ["a.example.", "b.example."]


@pytest.mark.parametrize(
    ("ttl", "kept"), [(1, 1), (4.5, 4.5), (29, 29), (30, 30), (31, 30), (3600, 30), (2**31 - 1, 30)]
)
async def test_an_answer_is_used_for_its_ttl_and_thirty_seconds_at_most(ttl: float, kept: float) -> None:
    now = [0.0]
    resolver = Resolver(found("192.0.2.1", ttl=ttl), found("192.0.2.2"))
    looked = Names(resolver, clock=lambda: now[0])
    assert KEEP_SECONDS == 30
    assert await looked("a.example.") == ["192.0.2.1"]
    now[0] = kept - 0.01
    assert await looked("a.example.") == ["192.0.2.1"]
    now[0] = kept
    assert await looked("a.example.") == ["192.0.2.2"]


async def test_an_answer_with_a_ttl_of_0_serves_those_who_waited_and_nobody_else() -> None:
    resolver = Resolver(found("192.0.2.1", ttl=0), found("192.0.2.2", ttl=0))
    looked = Names(resolver, clock=lambda: 0.0)
    asked = await asyncio.gather(*(looked("a.example.") for _ in range(100)))
    assert asked == [["192.0.2.1"]] * 100
    assert await looked("a.example.") == ["192.0.2.2"]
    assert len(resolver.asked) == 2


@pytest.mark.parametrize("answer", [ABSENT, found()])
async def test_an_absent_name_is_asked_for_once_and_left_alone_for_two_seconds(
    answer: Answer | Exception,
) -> None:
    now = [0.0]
    resolver = Resolver(answer, found("192.0.2.1"))
    looked = Names(resolver, clock=lambda: now[0])
    said = await refusal(looked("a.example."))
    assert "address" in said
    now[0] = REFUSED_SECONDS - 0.01
    assert await refusal(looked("a.example.")) == said
    assert len(resolver.asked) == 1
    now[0] = REFUSED_SECONDS
    assert await looked("a.example.") == ["192.0.2.1"]


async def test_a_failure_that_may_pass_is_tried_once_more_at_once() -> None:
    resolver = Resolver(FOR_NOW, found("192.0.2.1"))
    looked = Names(resolver, again=600, seconds=1200)
    async with asyncio.timeout(30):
        assert await looked("a.example.") == ["192.0.2.1"]
    resolver = Resolver(FOR_NOW)
    looked = Names(resolver, again=600, seconds=1200)
    async with asyncio.timeout(30):
        await refusal(looked("a.example."))
    assert len(resolver.asked) == 2


async def test_a_second_try_serves_everybody_where_the_first_is_lost() -> None:
    resolver = Resolver(never(), found("192.0.2.1"))
    looked = Names(resolver, again=0.01, seconds=600)
    async with asyncio.timeout(30):
        assert await asyncio.gather(*(looked("a.example.") for _ in range(16))) == [["192.0.2.1"]] * 16
    assert len(resolver.asked) == 2
    await looked.close()


async def test_the_first_try_may_still_answer_while_the_second_waits() -> None:
    first = never()
    resolver = Resolver(first, never())
    looked = Names(resolver, again=0.01, seconds=600)
    asked = asyncio.create_task(looked("a.example."))
    await until(lambda: len(resolver.asked) == 2)
    first.set_result(found("192.0.2.1"))
    async with asyncio.timeout(30):
        assert await asked == ["192.0.2.1"]
    await looked.close()


async def test_a_lookup_is_given_up_and_its_late_answer_serves_the_next_call() -> None:
    late = never()
    resolver = Resolver(late)
    looked = Names(resolver, again=0.01, seconds=0.02)
    async with asyncio.timeout(30):
        assert "did not respond" in await refusal(looked("a.example."))
        assert "did not respond" in await refusal(looked("a.example."))
        assert len(resolver.asked) == 2
        late.set_result(found("192.0.2.1"))
        await until(lambda: looked._fresh("a.example.").addresses != ())  # type: ignore[union-attr]
        assert await looked("a.example.") == ["192.0.2.1"]
    assert len(resolver.asked) == 2


async def test_tries_of_one_name_that_wait_are_bounded() -> None:
    now = [0.0]
    resolver = Resolver(never())
    looked = Names(resolver, clock=lambda: now[0], again=0.001, seconds=0.002)
    async with asyncio.timeout(30):
        for _ in range(TRIES + 3):
            await refusal(looked("a.example."))
            now[0] += REFUSED_SECONDS
        assert len(resolver.asked) == TRIES
        await refusal(looked("b.example."))
        assert len(resolver.asked) == TRIES + 2, "another name is looked up"
    await looked.close()


async def test_a_caller_who_gives_up_ends_nobody_elses_lookup() -> None:
    answer = never()
    looked = Names(Resolver(answer), again=600, seconds=1200)
    gone, stays = (asyncio.create_task(looked("a.example.")) for _ in range(2))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    answer.set_result(found("192.0.2.1"))
    async with asyncio.timeout(30):
        assert await stays == ["192.0.2.1"]


async def test_remembered_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dns_cache, "MOST", 10)
    resolver = Resolver(found("192.0.2.1"))
    looked = Names(resolver)
    for number in range(100):
        await looked(f"{number}.example.")
    assert len(looked._known) == 10
    assert looked._lookups == looked._tries == {}


async def test_an_address_that_is_remembered_is_judged_again_when_it_is_dialled() -> None:
    policy = EgressPolicy(allow=("*",), loopback=True, forbidden=("store.corp.net",))
    answers = {"store.corp.net.": ["192.0.2.9"], "tools.example.test.": ["127.0.0.1"]}
    asked: list[str] = []

    async def resolve(host: str, port: int) -> Answer:
        asked.append(host)
        return found(*answers[host])

    async with upstream(lambda _: response()) as up, OutboundHttp(policy, resolve=resolve) as outbound:
        url = f"http://tools.example.test:{up.port}/"
        place = target(PublishedBackend(url=url), namespace="team", policy=policy)
        request = OutboundRequest(target=place, method="POST", path="/", body=b"{}")
        assert (await outbound.send(request)).status == 200
        outbound._forbidden.addresses = frozenset({ip_address("127.0.0.1")})
        with pytest.raises(EgressRefused):
            await outbound.send(request)
        assert asked.count("tools.example.test.") == 1, "it was remembered"
        assert up.accepts == 1


async def test_the_first_call_waits_for_forbidden_names_and_its_own_at_the_same_time() -> None:
    policy = EgressPolicy(allow=("*",), loopback=True, forbidden=("store.corp.net",))
    asked: list[str] = []
    both = asyncio.Event()

    async def resolve(host: str, port: int) -> Answer:
        asked.append(host)
        if len(set(asked)) == 2:
            both.set()
        await both.wait()  # neither has an answer before the other is asked for
        return found("127.0.0.1" if host == "tools.example.test." else "192.0.2.9")

    async with upstream(lambda _: response()) as up, OutboundHttp(policy, resolve=resolve) as outbound:
        url = f"http://tools.example.test:{up.port}/"
        place = target(PublishedBackend(url=url), namespace="team", policy=policy)
        sent = await outbound.send(OutboundRequest(target=place, method="POST", path="/", body=b"{}"))
        assert sent.status == 200
    assert sorted(asked) == ["store.corp.net.", "tools.example.test."], "no second try of the first"
