"""The size of a list of `GET /`: known before it is made, and bounded."""

import json
import random
from typing import Any

import orjson
import pytest

from published import binding, bot, tool
from registry_harness import ManualClock
from toolcrib.wire.publish import Publish, PublishedTool, Revision
from toolcrib_registry.failures import Failure
from toolcrib_registry.policy import discovery
from toolcrib_registry.policy.state import CallerView, PolicyState
from toolcrib_registry.settings import RegistrySettings

pytestmark = pytest.mark.anyio
TYPES = ("string", "integer", "number", "object", "array", "boolean", "null")
VALUES: tuple[Any, ...] = (1, 1.5, "", [], {}, True, None)


def drawn(draw: random.Random, depth: int = 3) -> Any:
    """A schema that makes much of its entry: few bytes for each parameter and each word of its type."""
    what = draw.randrange(8 if depth else 5)
    if what == 0:
        return draw.choice((True, False, {}))
    if what == 1:
        return {"type": draw.sample(TYPES, draw.randint(1, 7))}
    if what == 2:
        return {"enum": draw.sample(VALUES, draw.randint(1, 7))}
    if what == 3:
        return {"const": draw.choice(VALUES)}
    if what == 4:
        return {"description": draw.choice(("", 'a\n\x01"ü', "\U0001f600" * 5)), "type": "string"}
    return {draw.choice(("anyOf", "oneOf")): [drawn(draw, depth - 1) for _ in range(draw.randint(1, 6))]}


def hostile(draw: random.Random, number: int) -> PublishedTool:
    names = [f"{i:x}" if draw.random() < 0.8 else f'\u00fc"{i}' for i in range(draw.randint(0, 300))]
    schema = {"type": "object", "properties": {n: drawn(draw) for n in names}, "required": names[::2]}
    fields = (
        {}
        if draw.random() < 0.5
        else {"output_schema": {"type": "object", "properties": schema["properties"]}}
    )
    text = "".join(draw.choice('ab\x01"\\\n\u00fc') for _ in range(draw.randint(0, 500)))
    return tool(f"team-a/tool-{number}", description=text, input_schema=schema, **fields)


async def state_with(tools: list[PublishedTool]) -> PolicyState:
    state = PolicyState(ManualClock())
    first = Revision(epoch=1, seq=1)
    await state.publish(Publish(base=None, to=first, tools=tuple(tools), bindings=(binding(),)))
    return state


def settings(most: int) -> RegistrySettings:
    return RegistrySettings(issuers=[], limits={"list_bytes": most})


@pytest.mark.slow
def test_no_entry_is_larger_than_what_is_known_of_the_tool_before() -> None:
    for seed in range(300):
        made = hostile(random.Random(seed), seed)
        entry = discovery.entry(made, made.tool_id, settings(1 << 30))
        assert len(orjson.dumps(entry)) <= discovery._at_most(made), seed


@pytest.mark.slow
async def test_a_list_above_the_limit_is_refused_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    async def seen_anew() -> tuple[PolicyState, CallerView]:
        state = await state_with([hostile(random.Random(i), i) for i in range(60)])
        return state, await state.caller_view(bot())

    state, seen = await seen_anew()
    size = len(discovery.encoded(seen, settings(1 << 30))[0])
    state, seen = await seen_anew()
    assert json.loads((await discovery.answer(state, seen, settings(size)))[0])["total_available"] == 60

    state, seen = await seen_anew()
    made = list[str]()
    monkeypatch.setattr(discovery, "entry", _noted(made, discovery.entry))
    for _ in range(3):
        with pytest.raises(Failure) as refused:
            await discovery.answer(state, seen, settings(size // 2))
        assert refused.value.code == "list_too_large"
        assert "GET /v1/tools" in refused.value.detail
    assert len(made) < 60, "sizes are reckoned up to the limit, and once"
    assert seen.content.answer is None


def _noted(made: list[str], entry: Any) -> Any:
    def noted(one: PublishedTool, *rest: Any) -> Any:
        made.append(one.tool_id)
        return entry(one, *rest)

    return noted


async def test_a_list_that_alone_is_larger_than_all_views_may_be_is_not_remembered() -> None:
    state = PolicyState(ManualClock(), view_bytes=100_000)
    tools = tuple(tool(f"team-a/tool-{i}", description="x" * 5_000) for i in range(40))
    await state.publish(Publish(base=None, to=Revision(epoch=1, seq=1), tools=tools, bindings=(binding(),)))
    seen = await state.caller_view(bot())
    body, _ = await discovery.answer(state, seen, settings(1 << 20))
    assert len(body) > 200_000
    assert seen.content.answer is None
    assert state._view_cache.weight <= 100_000


async def test_a_view_that_is_forgotten_takes_its_list_along_even_if_a_stream_holds_it() -> None:
    state = await state_with([tool("team-a/one")])
    seen = await state.caller_view(bot())
    await discovery.answer(state, seen, settings(1 << 20))
    assert seen.content.answer is not None
    to = Revision(epoch=1, seq=2)
    await state.publish(Publish(base=Revision(epoch=1, seq=1), to=to, tools=(tool("team-a/two"),)))
    assert seen.content.answer is None
