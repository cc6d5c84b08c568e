"""No schema that is accepted keeps the interpreter for long while it is compiled, and none is compiled on the event loop."""

import asyncio
import gc
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import published
from suites import examples
from toolcrib.errors import SchemaUnsafe
from toolcrib.schemas import compile_time
from toolcrib.schemas import safety as schema_safety
from toolcrib_registry.calls.arguments import Arguments
from toolcrib_registry.calls.errors import InvalidArguments, UpstreamProtocol
from toolcrib_registry.calls.validators import Compiled, compiled

Schema = dict[str, Any]
MOST = 0.1
"""Seconds of processor time in which the event loop counts as held; the budget is half of it."""
SHORT = 0.02


def taken(work: Callable[[], object]) -> float:
    """Seconds of processor time of the faster of two runs."""
    times = []
    gc.disable()
    try:
        for _ in range(2):
            begun = time.thread_time()
            work()
            times.append(time.thread_time() - begun)
    finally:
        gc.enable()
    return min(times)


def of_patterns(patterns: list[str]) -> Schema:
    return {"type": "object", "properties": {f"p{i}": {"pattern": p} for i, p in enumerate(patterns)}}


ATOMS = st.sampled_from([
    r"\pL", r"\PL", r"\p{Lu}", r"\p{Alphabetic}", r"[\pL\d]", r"[^\pL]", r"[\pL&&\pN]", r"\S", r"\s", r"\w", r"\W", r"\d",
    ".", "[^a]", r"[\w-]", r"[\S\s]", r"[^\W\d_]", "a", "é", "[а-я]", "[[:alpha:]]", r"[\x{0}-\x{10FFFF}]", "(a?|b*)",
])  # fmt: skip
REPEATS = st.sampled_from(["", "?", "*", "{3}", "{20}", "{0,40}", "{200}"])
PATTERNS = st.builds(
    lambda flag, atom, repeat, rest: f"(?{flag}:{atom}{repeat}){rest}",
    st.sampled_from(["", "i"]), ATOMS, REPEATS, st.one_of(st.just(""), ATOMS),
)  # fmt: skip


def towers(many: int, named: bool, users: int, steps: int) -> Schema:
    """`unevaluatedProperties` over properties, or patterns, that references lead to again and again.

    As YAML's anchors make it: what stands at several places is one object.
    """
    own = {f"{'' if named else 'a*'}{i}": {} for i in range(many)}
    definitions: Schema = {"d0": {"properties" if named else "patternProperties": own}}
    for i in range(steps):
        definitions[f"d{i + 1}"] = {"allOf": [{"$ref": f"#/$defs/d{i}"}] * 2}
    user = {"$ref": f"#/$defs/d{steps}", "unevaluatedProperties": False}
    return {"type": "object", "$defs": definitions, "properties": {f"u{i}": user for i in range(users)}}


SCHEMAS = st.one_of(
    st.builds(lambda p, n: of_patterns([f"x{i}{p}" for i in range(n)]), PATTERNS, st.integers(1, 1_500)),
    st.builds(
        lambda p, n: {"patternProperties": {f"x{i}{p}": {} for i in range(n)}, "anyOf": [{"required": ["a"]}]},
        PATTERNS, st.integers(1, 1_500),
    ),
    st.builds(towers, st.integers(1, 4_000), st.booleans(), st.integers(1, 200), st.integers(0, 14)),
    st.builds(
        lambda n: {"properties": {f"p{i}": {"anyOf": [{"const": 1}, {"const": 2}]} for i in range(n)}},
        st.integers(1, 1_400),
    ),
)  # fmt: skip


@settings(
    examples(60),
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(SCHEMAS)
def test_generated_schemas_are_refused_or_compiled_within_the_budget(schema: Schema) -> None:
    try:
        schema_safety.check(schema)
    except SchemaUnsafe:
        return
    assert taken(lambda: compiled(schema)) < MOST
    if compile_time.is_short(json.dumps(schema, separators=(",", ":")).encode()):
        assert taken(lambda: Compiled(schema)) < SHORT


@pytest.mark.parametrize(
    "schema",
    [
        of_patterns([rf"\pL{{20}}q{i}" for i in range(55)]),
        {"patternProperties": {rf"\pLq{i}": {} for i in range(1_400)}, "anyOf": [{"required": ["a"]}]},
        of_patterns([rf"(?i:[\x{{0}}-\x{{10FFFF}}]{{20}}){i}" for i in range(55)]),
        towers(1_000, named=False, users=200, steps=0),
        towers(1_000, named=True, users=1, steps=14),
    ],
    ids=["classes", "classes of names", "either case", "patterns again", "properties again"],
)
def test_what_takes_longer_is_refused_at_apply_fast_and_not_compiled_either(schema: Schema) -> None:
    def refused() -> None:
        with pytest.raises(SchemaUnsafe):
            schema_safety.check(schema)

    assert taken(refused) < 5 * MOST, "in a thread, where it passes the interpreter on"
    with pytest.raises(UpstreamProtocol):
        Compiled(json.loads(json.dumps(schema)))


ORDINARY = [
    of_patterns([rf"^\pL[\pL\pN _.'-]{{0,{n}}}$" for n in range(1, 5)]),
    of_patterns([rf"^\w{{1,255}}@[\w.-]{{1,{n}}}$" for n in range(20, 26)]),
    of_patterns([rf"^[A-Z]{{2}}-[0-9]{{{n}}}(?:/[a-z0-9._~-]+)*$" for n in range(1, 200)]),
]


@pytest.mark.parametrize("schema", ORDINARY, ids=["names", "addresses", "many"])
def test_patterns_as_they_are_written_for_people_are_accepted(schema: Schema) -> None:
    schema_safety.check(schema)
    Compiled(schema)


DEAR = [
    of_patterns([rf"\pL{{18}}q{i}" for i in range(7)]),
    {"patternProperties": {f"a*q{i}": {} for i in range(800)}, "anyOf": [{"required": ["a"]}]},
]


@pytest.mark.usefixtures("no_collections")
@pytest.mark.parametrize("schema", DEAR, ids=["one that fits 2 KiB", "one with alternatives"])
@pytest.mark.anyio
async def test_neither_the_first_call_nor_the_first_invalid_one_compiles_on_the_event_loop(
    schema: Schema,
) -> None:
    schema_safety.check(schema)
    alone = taken(lambda: Compiled(schema))
    arguments, tool = Arguments(), published.tool(input_schema=schema)
    invalid = {"p0": "", "a*q1": 5}
    begun = time.thread_time()
    with pytest.raises(InvalidArguments):
        await arguments.checked(tool, invalid, "a")
    assert time.thread_time() - begun < alone / 3


@pytest.mark.anyio
async def test_two_schemas_are_never_compiled_at_one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    running, most = 0, 0

    def counted(schema: Schema) -> Compiled:
        nonlocal running, most
        running += 1
        most = max(most, running)
        made = Compiled(schema)
        running -= 1
        return made

    monkeypatch.setattr("toolcrib_registry.calls.validators.Compiled", counted)
    arguments = Arguments()
    tools = [published.tool(name=f"t{i}", input_schema=of_patterns([rf"\pL{{5}}q{i}"])) for i in range(12)]
    await asyncio.gather(*(arguments.checked(t, {}, f"a{i % 3}") for i, t in enumerate(tools)))
    assert most == 1
