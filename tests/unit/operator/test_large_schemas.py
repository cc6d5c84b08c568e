"""A schema that takes long to judge does not hold the operator's loop."""

import asyncio
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests import tool
from operator_harness import MemoryReplica
from toolcrib.lint import weaknesses
from toolcrib.schemas import safety
from toolcrib.schemas.cost import SchemaCost
from toolcrib.wire.publish import packed
from toolcrib_operator.adapters.memory import FixedReplicas, MemoryWriter
from toolcrib_operator.assessment import Assessor
from toolcrib_operator.kinds.table import WATCHED
from toolcrib_operator.loop import Loop
from toolcrib_operator.packing import PackedTool
from toolcrib_operator.replicas.index import IndexSync
from toolcrib_operator.replicas.publisher import Publisher
from toolcrib_operator.settings import LoopSettings
from toolcrib_operator.world import World

pytestmark = pytest.mark.anyio
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)
SETTINGS = LoopSettings(hold_back=0.2, takeover_hold=0.5, finalizers=False, services=False)


async def test_schemas_that_take_long_are_judged_off_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = {f"p{i}": {"anyOf": [{"const": 1}, {"const": 2}]} for i in range(1_400)}
    schema = {"type": "object", "properties": parameters}
    judged = asyncio.Event()
    took_long: list[threading.Thread] = []
    checked, judge = safety._check, Assessor.judge

    def check(large: Any, *, arguments: bool) -> None:
        if large == schema:
            took_long.append(threading.current_thread())
        checked(large, arguments=arguments)

    class Cost(SchemaCost):
        def __init__(self, large: Any) -> None:
            if large == schema:
                took_long.append(threading.current_thread())
            super().__init__(large)

    def judging(assessor: Assessor, refs: Any) -> None:
        found = list(refs)
        judge(assessor, found)
        if any(ref.key.endswith("large") for ref in found):
            judged.set()

    monkeypatch.setattr(safety, "_check", check)
    monkeypatch.setattr(weaknesses, "SchemaCost", Cost)
    monkeypatch.setattr(Assessor, "judge", judging)
    world = World()
    publisher = Publisher(1, FixedReplicas(MemoryReplica("one")))
    loop = Loop(world, publisher, IndexSync(publisher), MemoryWriter(world), settings=SETTINGS)
    for kind in WATCHED:
        world.replace(kind, [tool("large", inputSchema=schema), tool("small")] if kind == "Tool" else [])
    stop = asyncio.Event()
    running = asyncio.create_task(loop.run(stop))
    try:
        await asyncio.wait_for(judged.wait(), 30)
    finally:
        stop.set()
        await running
    assert took_long
    assert threading.main_thread() not in took_long


@given(schema=st.dictionaries(st.text(max_size=5), JSON, max_size=6))
def test_the_count_of_a_schemas_values_is_never_taken_for_less(schema: dict[str, Any]) -> None:
    def values(node: Any) -> int:
        inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        return 1 + sum(map(values, inner))

    assert PackedTool(b"{}", packed(schema), None).most_values >= values(schema)
