"""What adapters to frameworks offer a model, against a running registry; the frameworks themselves are in `make frameworks`."""

import json
import logging
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import anyio
import pytest

from frameworks.world import FANNED, Door
from registry_harness import RunningRegistry, backend, binding, running_registry, tool
from stub_server import Answer, Asked, answering
from toolcrib.wire.probes import place_key
from toolcrib_client import AsyncToolcrib, RegistryUnavailable, Unauthorized
from toolcrib_client.live import DISCOVERY, LiveTools, written_out
from toolcrib_client.results import LoadedTool

CLIENT = Path(__file__).parents[3] / "client" / "toolcrib_client"
ADAPTERS = ("langchain", "openai_agents", "pydantic_ai")
EXPRESSION = {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]}
GRANT = binding("planner", ("calculator:use",))
READER = binding("planner", ("file_reader:use",), name="reader")


@pytest.fixture
def registry() -> Iterator[RunningRegistry]:
    def answer(asked: Asked) -> Answer:
        return Answer(json.dumps({"result": asked.json()["expression"]}).encode())

    with answering(answer) as port:
        names = ("calculator", "file_reader", "secret")
        tools = [tool(n, input_schema=EXPRESSION, backend=backend(port)) for n in names]
        with running_registry(tools, [GRANT, READER]) as running:
            yield running


def met(
    registry: RunningRegistry, work: Callable[[LiveTools], Awaitable[None]], *, url: str = "", **options: bool
) -> None:
    async def run() -> None:
        async with AsyncToolcrib(
            url or registry.url, lambda: registry.token("team", "planner"), deadline=10
        ) as crib:
            await work(LiveTools(crib, **options))

    anyio.run(run)


def name_of(offered: LoadedTool) -> str:
    return offered.model_name


def test_what_is_offered_follows_the_grants(registry: RunningRegistry) -> None:
    async def work(live: LiveTools) -> None:
        assert list(await live.offered(name_of)) == ["calculator", "file_reader"]
        registry.publish(remove_bindings=[READER.uid])
        refused = await live.call("file_reader", {"expression": "1"})
        assert refused.failed
        assert list(await live.offered(name_of)) == ["calculator"]
        assert (await live.call("file_reader", {})).value == "There is no tool 'file_reader' now."
        registry.publish(bindings=[READER])
        assert list(await live.offered(name_of)) == ["calculator", "file_reader"]
        assert (await live.call("file_reader", '{"expression": "1"}')).value == {"result": "1"}

    met(registry, work)


def test_a_definition_is_loaded_again_only_when_it_changed(registry: RunningRegistry) -> None:
    async def work(live: LiveTools) -> None:
        made: list[str] = []

        def make(offered: LoadedTool) -> str:
            made.append(offered.description)
            return offered.description

        await live.offered(make)
        await live.offered(make)
        registry.publish([tool("calculator", description="Better.", input_schema=EXPRESSION)])
        assert (await live.offered(make))["calculator"] == "Better."
        assert made == ["The tool calculator.", "The tool file_reader.", "Better."]

    met(registry, work)


def test_a_schema_that_is_refused_costs_that_tool_alone_and_is_told_once(
    registry: RunningRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    def make(offered: LoadedTool) -> str:
        if offered.name == "calculator":
            raise ValueError("too odd\x07")
        return offered.name

    async def work(live: LiveTools) -> None:
        for _ in range(2):
            assert list(await live.for_run().offered(make)) == ["file_reader"]

    with caplog.at_level(logging.WARNING, "toolcrib_client"):
        met(registry, work)

    assert caplog.messages == ["tool team/calculator is left out: ValueError: too odd"]


def test_wrong_arguments_are_told_so_that_a_model_can_correct_them(registry: RunningRegistry) -> None:
    async def work(live: LiveTools) -> None:
        await live.offered(name_of)
        wrong = await live.call("calculator", {"expression": 6})
        assert wrong.mendable
        assert "/expression" in wrong.text()
        for garbage in ("{", "[]", '{"expression": NaN}'):
            assert (await live.call("calculator", garbage)).mendable

    met(registry, work)


def test_a_registry_that_is_away_is_waited_for_and_a_call_is_told_to_the_model(
    registry: RunningRegistry,
) -> None:
    door = Door(int(registry.url.rsplit(":", 1)[1]))

    async def work(live: LiveTools) -> None:
        await live.offered(name_of)
        door.shut()
        lost = await live.call("calculator", {"expression": "1"})
        assert (lost.failed, "cannot be reached" in lost.text()) == (True, True)
        with pytest.raises(RegistryUnavailable):
            await LiveTools(live.crib, patience=0).offered(name_of)
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.to_thread.run_sync, door.open)
            assert list(await live.offered(name_of)) == ["calculator", "file_reader"]

    try:
        met(registry, work, url=f"http://127.0.0.1:{door.port}")
    finally:
        door.close()


def test_an_error_that_no_model_can_mend_is_raised(registry: RunningRegistry) -> None:
    async def run() -> None:
        async with AsyncToolcrib(registry.url, lambda: "not.a.token") as crib:
            with pytest.raises(Unauthorized):
                await LiveTools(crib, discovery=True).call("search_tools", {"query": "calculator"})

    anyio.run(run)


def test_with_discovery_a_model_finds_chooses_and_calls_and_nothing_else(registry: RunningRegistry) -> None:
    async def work(live: LiveTools) -> None:
        assert tuple(await live.offered(name_of)) == tuple(t.name for t in DISCOVERY)
        found = await live.call("search_tools", {"query": "calculator"})
        assert "- calculator: The tool calculator." in found.text()
        assert "secret" not in (await live.call("search_tools", {"query": "secret"})).text()
        given = {"name": "calculator", "arguments": {"expression": "6*7"}}
        assert "not ready" in (await live.call("call_tool", given)).text()
        for name in ("secret", "invented"):
            denied = await live.call("ready", {"names": ["calculator", name]})
            assert denied.text() == (
                f"Refused: not all of calculator, {name} are your tools. Use names that a search has shown."
            )
        assert '"expression"' in (await live.call("describe_tool", {"names": ["calculator"]})).text()
        assert not (await live.call("ready", {"names": ["calculator"]})).failed
        assert (await live.call("call_tool", given)).value == {"result": "6*7"}
        assert "not ready" in (await live.for_run().call("call_tool", given)).text()
        assert (await live.call("ready", {"names": []})).text() == "Go on without a tool."
        assert "not ready" in (await (other := live.for_run()).call("call_tool", given)).text()
        assert not (await other.call("ready", {"names": "calculator"})).failed  # one name instead of a list

    met(registry, work, discovery=True)


def test_a_search_shows_a_model_five_tools_of_many(registry: RunningRegistry) -> None:
    many = [tool(f"reader-{n}", scopes=("file_reader:use",), input_schema=EXPRESSION) for n in range(12)]
    registry.publish(many)

    async def work(live: LiveTools) -> None:
        found = (await live.call("search_tools", {"query": "reader"})).text()
        assert len(found.splitlines()) == 5

    met(registry, work, discovery=True)


def test_a_search_tells_a_model_which_tool_is_down(registry: RunningRegistry) -> None:
    place = place_key(registry.registry.deps.state.snapshot.tools["team/calculator"].backend)
    assert place is not None
    assert registry.heartbeat(place).status_code == 200

    async def work(live: LiveTools) -> None:
        found = await live.call("search_tools", {"query": "calculator"})
        assert found.text() == "- calculator: The tool calculator. (unavailable now)"

    met(registry, work, discovery=True)


def scripted(
    answer: Callable[[Asked], Answer], work: Callable[[LiveTools], Awaitable[None]], *, patience: float = 30
) -> None:
    """The same at a registry that answers as it is told."""

    async def run(port: int) -> None:
        async with AsyncToolcrib(f"http://127.0.0.1:{port}", None) as crib:
            await work(LiveTools(crib, patience=patience))

    with answering(answer) as port:
        anyio.run(run, port)


def listed(path: str) -> Answer:
    described = {
        "tool_id": "team/a",
        "name": "a",
        "namespace": "team",
        "description": "The tool a.",
        "digest": "sha256:1",
        "input_schema": {},
        "scopes": ["a:use"],
        "state": "Active",
        "tags": [],
        "examples": [],
    }
    if path.startswith("/v1/tools"):
        return Answer(json.dumps({"revision": "1", "tools": [described]}).encode())
    failed = {"tool": "team/a", "code": "too_large", "detail": "The definition is too large."}
    return Answer(json.dumps({"revision": "1", "tools": [], "errors": [failed]}).encode())


def test_a_tool_that_cannot_be_loaded_is_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def work(live: LiveTools) -> None:
        assert await live.offered(name_of) == {}

    with caplog.at_level(logging.WARNING, "toolcrib_client"):
        scripted(lambda asked: listed(asked.path), work)

    assert caplog.messages == ["tool team/a is left out: too_large: The definition is too large."]


def test_a_registry_that_says_how_long_to_wait_is_not_asked_before(caplog: pytest.LogCaptureFixture) -> None:
    asked = 0

    def away(_: Asked) -> Answer:
        nonlocal asked
        asked += 1
        problem = {"code": "not_ready", "detail": "Not ready.", "status": 503}
        return Answer(json.dumps(problem).encode(), status=503, headers={"Retry-After": "60"})

    async def work(live: LiveTools) -> None:
        with pytest.raises(RegistryUnavailable):
            await live.offered(name_of)

    scripted(away, work)
    assert asked == 1, "a minute is more than its patience"


def test_a_schema_that_fans_out_is_counted_without_writing_it_out() -> None:
    assert written_out(FANNED) > 2**18
    assert written_out(EXPRESSION) == 7
    assert written_out({"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}}) == 5
    assert written_out({"$ref": "#/$defs/absent"}) == 3


@pytest.mark.parametrize("name", ADAPTERS)
def test_an_adapter_has_at_most_120_lines(name: str) -> None:
    assert len((CLIENT / f"{name}.py").read_text().splitlines()) <= 120
