"""Compiled schemas take bounded memory, are compiled off the loop where that takes long, and once for all who wait."""

import asyncio
import contextlib
import json
import re
import subprocess
import sys
import time
from typing import Any

import pytest

import published
from registry_harness import backend, binding, running_registry, tool
from toolcrib_registry.calls.arguments import Arguments
from toolcrib_registry.calls.bounds import CallBounds
from toolcrib_registry.calls.errors import ArgumentsTooComplex, InvalidArguments, UpstreamProtocol
from toolcrib_registry.calls.validators import Compiled, Validators

Schema = dict[str, Any]


def properties(count: int, of: int = 0) -> Schema:
    return {
        "type": "object",
        "properties": {f"p{k}_{of}": {"type": "string", "minLength": k} for k in range(count)},
    }


LARGE = properties(1_500)


async def prepared(validators: Validators, schema: Schema) -> Compiled:
    text = json.dumps(schema).encode()
    return await validators.prepare("d", text, lambda: schema, contextlib.nullcontext)


def test_compiled_schemas_are_kept_within_their_bytes_and_those_used_last_stay() -> None:
    one, gone = Compiled(properties(50)).size, []
    validators = Validators(int(3.5 * one), lambda: gone.append(1))
    arguments = Arguments(CallBounds(), validators)
    for digest in ("a", "b", "c", "a", "d"):
        arguments.check(digest, properties(50), {})
    assert len(validators) == 3
    assert len(gone) == 1
    assert validators.size <= 3.5 * one
    # `a` was used after `b`, so `b` went: under its digest another schema is compiled
    arguments.check("a", {"required": ["x"]}, {})
    with pytest.raises(InvalidArguments):
        arguments.check("b", {"required": ["x"]}, {})


def test_one_that_is_larger_than_all_may_be_is_kept_alone() -> None:
    validators = Validators(1)
    for i in range(3):
        validators.of(str(i), lambda: LARGE)
        assert len(validators) == 1
        assert validators.size == Compiled(LARGE).size


def test_what_calls_add_to_a_cost_table_is_weighed_too() -> None:
    """A recursive schema whose states are only partly explored when it is compiled."""
    schema = {
        "$defs": {"n": {"anyOf": [{"properties": {f"k{j}": {"$ref": "#/$defs/n"} for j in range(i, i + 9)}}
                                  for i in range(12)]}},
        "$ref": "#/$defs/n",
    }  # fmt: skip
    validators = Validators()
    arguments = Arguments(CallBounds(), validators)
    value: Schema = {}
    for i in range(20):
        value = {f"k{i}": value, f"k{(i * 7) % 20}": {}}
    arguments.check("d", schema, {})
    before = validators.size
    with contextlib.suppress(ArgumentsTooComplex):
        arguments.check("d", schema, value)
    assert before < validators.size == validators.of("d", lambda: schema).size


MEASURED = """
import ctypes, gc, json, sys
from toolcrib_registry.calls.validators import Compiled
CLASSES = {
    "trivial": (lambda i: {"type": "object"}, 600),
    "ordinary": (lambda i: {"properties": {f"argument_{k}": {"type": "string", "description": f"Which {k} of {i}."} for k in range(6)}}, 200),
    "texts": (lambda i: {"properties": {f"p{k}": {"type": "string", "description": f"{i} {k} " * 40} for k in range(150)}}, 12),
    "names": (lambda i: {"properties": {f"{k}x{i}": {} for k in range(3000)}}, 8),
    "nested": (lambda i: {"properties": {f"p{k}": {"items": {"items": {"enum": [k, 0.5]}}, "minimum": i} for k in range(500)}}, 8),
    "branches": (lambda i: {"items": {"anyOf": [{"properties": {f"k{k}": {"const": k + i}}} for k in range(400)]}}, 8),
    "patterns": (lambda i: {"properties": {f"p{k}": {"pattern": f"^[a-z]{{1,20}}{k}_{i}(foo|bar)*$"} for k in range(60)}}, 8),
    "options": (lambda i: {"enum": [f"v{k}-{i}" for k in range(5000)]}, 10),
}
def resident():
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(open("/proc/self/statm").read().split()[1]) * 4096
found = {}
for name, (make, count) in CLASSES.items():
    Compiled(make(-1)).errors({}, cost=0, size=0)
    before, kept = resident(), []
    for i in range(count):
        kept.append(Compiled(make(i)))
        kept[-1].errors({}, cost=0, size=0)
    found[name] = [sum(one.size for one in kept), resident() - before]
    del kept
print(json.dumps(found))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and trims glibc's heap")
def test_the_estimate_is_not_below_what_compiled_schemas_take() -> None:
    done = subprocess.run([sys.executable, "-c", MEASURED], stdout=subprocess.PIPE, check=True, text=True)
    found = json.loads(done.stdout)
    low = {
        name: (estimated, measured)
        for name, (estimated, measured) in found.items()
        if estimated < 0.9 * measured
    }
    assert len(found) == 8
    assert low == {}


@pytest.mark.usefixtures("no_collections")
@pytest.mark.anyio
async def test_a_large_schema_is_compiled_off_the_loop_and_once_for_all_who_wait() -> None:
    arguments, made = Arguments(validators=(validators := Validators())), published.tool(input_schema=LARGE)
    begun = time.thread_time()
    Compiled(LARGE)
    alone = time.thread_time() - begun
    begun = time.thread_time()
    await asyncio.gather(*(arguments.checked(made, {}, "a") for _ in range(20)))
    assert time.thread_time() - begun < alone / 3
    assert len(validators) == 1


@pytest.mark.anyio
async def test_a_caller_who_goes_away_takes_the_validator_from_nobody() -> None:
    validators = Validators()
    first = asyncio.create_task(prepared(validators, LARGE))
    second = asyncio.create_task(prepared(validators, LARGE))
    await asyncio.sleep(0)
    first.cancel()
    await second
    assert len(validators) == 1


@pytest.mark.anyio
async def test_a_large_schema_that_cannot_be_evaluated_makes_each_call_fail() -> None:
    validators = Validators()
    for _ in range(2):
        with pytest.raises(UpstreamProtocol):
            await prepared(validators, {"$ref": "http://127.0.0.1:9/x"})
    assert len(validators) == 0


def test_the_bound_is_a_setting_and_metrics_tell_what_is_held_and_what_made_room() -> None:
    tools = [
        tool(f"t{i}", input_schema=properties(500, i), scopes=("a:use",), backend=backend(9))
        for i in range(5)
    ]
    with running_registry(tools, [binding("bot", ("a:use",))], limits={"validator_bytes": 3 << 20}) as r:
        for one in tools:
            body = {"tool": one.tool_id, "arguments": {}}
            r.http.post(r.url + "/v1/call", headers=r.auth("team", "bot"), json=body)
        metrics = r.metrics()
    held = float(re.findall(r"^toolcrib_validator_bytes (\S+)", metrics, re.MULTILINE)[0])
    gone = float(re.findall(r"^toolcrib_validator_evictions_total (\S+)", metrics, re.MULTILINE)[0])
    assert 0 < held <= 3 << 20
    assert gone > 0
