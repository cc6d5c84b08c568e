"""A. Arguments and patterns that take long to check: no call holds the loop, each is answered."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import httpx

from attack.stage import JSON, Stage, Target, code_of, hold, service, text
from registry_harness import binding, tool
from toolcrib.errors import SchemaUnsafe
from toolcrib.schemas import safety as schema_safety
from toolcrib.wire.publish import PublishedTool

Pair = tuple[dict[str, Any], Any]
"""A schema, and what makes it work hard."""
BODY = 900_000
CALLS = 2
"""Of each case that is asked for."""
_ANSWERS = {"", "invalid_arguments", "arguments_too_complex"}


def _options(draw: random.Random) -> Pair:
    kind = draw.choice(["texts", "fractions", "mixed", "objects"])
    count = draw.choice([50, 500, 2000, 4000])
    if kind == "texts":
        options: list[Any] = [f"k{i:05}" for i in range(count)]
    elif kind == "fractions":
        options = [i + 0.5 for i in range(count)]
    elif kind == "mixed":
        options = [x for i in range(count // 2) for x in (i, str(i))]
    else:
        options = [{"a": i} for i in range(count // 20)]
    missing = draw.random() < 0.5
    value = "none of them" if missing else options[-1]
    form = draw.choice(["enum", "anyOf", "oneOf", "not"])
    if form == "enum":
        return {"enum": options}, value
    branches = [{"const": option} for option in options[: draw.choice([20, 200, 2000])]]
    if form == "not":
        return {"not": {"anyOf": branches}}, "none of them"
    return {form: branches}, value if missing else branches[-1]["const"]


def _pattern(draw: random.Random) -> Pair:
    weight = draw.choice([3, 30, 300, 4000])
    pattern = draw.choice(
        [
            f"[ab]*a[ab]{{{weight}}}c",
            f"^(a|b|ab){{1,{min(weight, 300)}}}x$",
            "(" + "|".join(f"{i:03}" for i in range(min(weight, 300))) + ")+z",
            f"(a?){{{min(weight, 300)}}}a{{{min(weight, 300)}}}",
            "^([a-z]+[0-9]*)+$",
        ]
    )
    value = draw.choice(["ab", "a", "aab", "0a"]) * draw.choice([5, 500, 15_000, 200_000])
    if draw.random() < 0.5:
        return {"pattern": pattern}, value[:BODY] + draw.choice(["", "c", "!"])
    names = {f"{text(draw, 'ab', 1, 400)}{i}": 1 for i in range(draw.choice([5, 200]))}
    keyword = draw.choice(["patternProperties", "propertyNames"])
    schema: Any = {pattern + str(i): {} for i in range(draw.choice([1, 20]))}
    return {keyword: schema if keyword == "patternProperties" else {"pattern": pattern}}, names


def _unique(draw: random.Random) -> Pair:
    count = draw.choice([10, 300, 4000, 30_000])
    shapes: list[Callable[[int], Any]] = [
        lambda i: i,
        lambda i: 2**64 + i,
        lambda i: {"a": i},
        lambda i: i + 0.25,
        lambda i: [[i]],
        lambda i: "x" * 20 + str(i),
    ]
    items = draw.choice(shapes)
    return {"uniqueItems": True}, [items(i) for i in range(count)]


def _recursive(draw: random.Random) -> Pair:
    branches = [{"$ref": "#/$defs/n"}, {"properties": {"a": {"$ref": "#/$defs/n"}}, "required": ["a"]}]
    form = draw.choice(["anyOf", "oneOf", "allOf"])
    node: dict[str, Any] = {
        "type": ["object", "array", "null"],
        "items": {form: branches[: draw.randint(1, 2)]},
        "additionalProperties": {form: [{"$ref": "#/$defs/n"}] * draw.randint(1, 4)},
    }
    value: Any = None
    for _ in range(draw.randint(1, 24)):
        value = {"a": value, "b": value} if draw.random() < 0.3 and len(json.dumps(value)) < 2000 else [value]
    return {"$defs": {"n": node}, **node}, value


def _contains(draw: random.Random) -> Pair:
    inner, value = draw.choice([_options, _pattern])(draw)
    count = draw.choice([2, 100, 5000])
    return {"contains": inner, "minContains": 1, "maxContains": count}, [value] * max(
        1, min(count, BODY // (len(str(value)) + 9))
    )


def _tower(draw: random.Random) -> Pair:
    inner, value = draw.choice([_options, _pattern, _unique])(draw)
    form = draw.choice(["allOf", "anyOf", "oneOf", "if"])
    if form == "if":
        return {"if": inner, "then": inner, "else": inner}, value
    return {form: [inner] * draw.choice([2, 8])}, value


def _rows(draw: random.Random) -> Pair:
    inner, value = draw.choice([_options, _pattern, _unique, _tower])(draw)
    size = len(json.dumps(value)) + 2
    return {"items": inner}, [value] * max(1, min(draw.choice([1, 50, 5000, 20_000]), BODY // size))


def _compiled(draw: random.Random) -> Pair:
    """What takes long before any argument is looked at, and again where it does not fit."""
    atom = draw.choice([r"\pL", r"[^\pL]", r"(?i:\PL)", r"\S", ".", "[^a]", "a*", r"(?i:[\x{0}-\x{10FFFF}])"])
    repeat, count = draw.choice(["", "{3}", "{20}"]), draw.choice([2, 6, 30, 200, 800])
    patterns = [f"{atom}{repeat}q{i}" for i in range(count)]
    form = draw.choice(["pattern", "patternProperties", "unevaluatedProperties"])
    if form == "pattern":
        inner: dict[str, Any] = {"properties": {f"p{i}": {"pattern": p} for i, p in enumerate(patterns)}}
    else:
        inner = {"patternProperties": {p: {} for p in patterns}}
    if form == "unevaluatedProperties":
        used = {f"u{i}": {"$ref": "#/$defs/n", form: False} for i in range(draw.choice([1, 20, 200]))}
        inner = {"$defs": {"n": inner}, "properties": used}
    return {**inner, "anyOf": [{"required": ["a"]}, {"type": "null"}]}, draw.choice(
        [{}, {"a": 1}, {"p0": ""}]
    )


MAKERS = (_compiled, _compiled, _options, _pattern, _unique, _recursive, _contains, _tower, _rows, _rows)


def attack(stage: Stage, draw: random.Random, count: int) -> int:
    """Calls of generated schemas with generated arguments."""
    target = stage.target()
    calls, codes, count = 0, set(), CALLS * count
    while calls < count:
        tools: list[PublishedTool] = []
        sent: list[tuple[str, dict[str, Any], bytes]] = []
        while len(tools) < min(25, count - calls):
            inner, value = draw.choice(MAKERS)(draw)
            definitions = {"$defs": inner.pop("$defs")} if "$defs" in inner else {}
            schema = {"type": "object", "properties": {"v": inner}, **definitions}
            try:
                schema_safety.check(schema)
            except SchemaUnsafe:
                continue  # refused when it is applied
            body = json.dumps({"v": value}).encode()
            if len(body) <= BODY:
                name = f"t{len(tools)}"
                tools.append(
                    tool(name, scopes=("s",), input_schema=schema, backend=service("team", "/tools/" + name))
                )
                sent.append((name, schema, body))
        target.publish(tools, [binding("bot", ["s"])])
        for name, schema, body in sent:
            answer, holds = _sent(target, name, body)
            code = code_of(answer)
            case = {
                "schema": _short(schema),
                "arguments": _short(body.decode()),
                "answer": answer.status_code,
            }
            hold(
                "a call is made or refused with 400",
                answer.status_code in (200, 400) and code in _ANSWERS,
                code=code,
                **case,
            )
            hold(
                "no call holds the event loop for 100 ms",
                not holds,
                said=target.said_held(),
                **case,
            )
            codes.add(code)
            calls += 1
    if count >= 60:
        hold("some calls are made, some fit no schema, some are too complex", codes == _ANSWERS, codes=codes)
    return calls


def _sent(target: Target, name: str, body: bytes) -> tuple[httpx.Response, bool]:
    """The answer, and whether the call held the loop, each of three times: a busy machine may make one look so."""
    for _ in range(3):
        before = target.held()
        answer = target.http.post(
            f"{target.url}/tools/{name}", headers={**target.auth(), **JSON}, content=body
        )
        if target.held() == before:
            return answer, False
    return answer, True


def _short(value: Any) -> str:
    shown = value if isinstance(value, str) else json.dumps(value)
    return shown if len(shown) < 400 else f"{shown[:200]} … {shown[-100:]} ({len(shown)} characters)"
