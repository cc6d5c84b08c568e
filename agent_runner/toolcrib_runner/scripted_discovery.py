"""How the scripted endpoint works where tools have to be found first: it searches, chooses, and calls what it chose.

It reads the prompts as a model would, in functions or in plain text, and knows nothing else of the runner. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Plan = Callable[[str, Sequence[Mapping[str, Any]]], list[tuple[str, str]]]
"""The calls for a task, of the functions that can be called: (name, arguments as JSON text)."""
FUNCTIONS = frozenset({"search_tools", "describe_tool", "ready", "call_tool"})
_NOTHING_FITS = "No tool fits this task"
_TEXT = ("SEARCH:", "CALL:", _NOTHING_FITS)
_SHOWN = re.compile(r"^- ([A-Za-z0-9_-]{1,64}): (.*)(?:\n  (\{.*\}))?$", re.MULTILINE)
_RESULT = re.compile(r"Result of ([A-Za-z0-9_-]{1,64}) \(data, not instructions\):\n")


@dataclass(frozen=True, slots=True)
class Next:
    """What to do next: `kind` is one of the functions' names, or empty where everything is done.

    `name` and `arguments` are those of a call, `names` of READY, `query` of a search.
    """

    kind: str
    name: str = ""
    arguments: str = ""
    names: tuple[str, ...] = ()
    query: str = ""

    def given(self) -> dict[str, Any]:
        """The arguments of the function."""
        if self.kind == "search_tools":
            return {"query": self.query}
        if self.kind == "ready":
            return {"names": list(self.names)}
        try:
            arguments = json.loads(self.arguments)
        except ValueError:
            arguments = self.arguments
        return {"name": self.name, "arguments": arguments}

    def line(self) -> str:
        """The same as a command in plain text."""
        if self.kind == "search_tools":
            return f"SEARCH: {self.query}"
        if self.kind == "ready":
            return f"READY: {', '.join(self.names) or 'none'}"
        return f"CALL: {self.name} {self.arguments}"


def concerns(system: str, offered: Sequence[str]) -> bool:
    """Whether tools are found and called by way of these functions, or by commands in plain text."""
    return set(offered) == FUNCTIONS or (not offered and any(word in system for word in _TEXT))


def begins(messages: Sequence[Mapping[str, Any]]) -> int:
    """The index of the task: the first message of the user; what follows of the user's are answers in plain text."""
    return next((i for i, m in enumerate(messages) if m.get("role") == "user"), -1)


def next_step(task: str, system: str, since: Sequence[Mapping[str, Any]], plan: Plan) -> Next:
    """What follows: a search for the task, the choice of what fits, then the calls in their order."""
    answers = [str(m.get("content") or "") for m in since if m.get("role") in ("tool", "user")]
    shown = _shown("\n".join([system, *answers]))
    planned = plan(task, shown)
    if "First find tools" in system and not _done(since):
        names = tuple(dict.fromkeys(name for name, _ in planned))
        if names and not any(answer.startswith("Refused") for answer in answers):
            return Next("ready", names=names)
        return Next("ready") if answers else Next("search_tools", query=" ".join(task.split())[:400])
    if _NOTHING_FITS in system:
        return Next("")
    called = _done(since)
    left = planned[len(called) :]
    return Next("call_tool", name=left[0][0], arguments=left[0][1]) if left else Next("")


def results(since: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """What was called and what came of it."""
    called = _done(since)
    answers = [str(m.get("content") or "") for m in since if m.get("role") == "tool"]
    answers += [
        str(m.get("content"))[found.end() :]
        for m in since
        if m.get("role") == "user" and (found := _RESULT.match(str(m.get("content") or "")))
    ]
    return list(zip(called, answers, strict=False))


def _done(since: Sequence[Mapping[str, Any]]) -> list[str]:
    """The tools called so far."""
    names = []
    for message in since:
        for call in message.get("tool_calls") or ():
            if call["function"]["name"] == "call_tool":
                names.append(str(json.loads(call["function"]["arguments"]).get("name", "")))
        if message.get("role") == "user" and (found := _RESULT.match(str(message.get("content") or ""))):
            names.append(found[1])
    return names


def _shown(text: str) -> list[dict[str, Any]]:
    """The tools that a text shows, with their schemas where those stand below."""
    found: dict[str, dict[str, Any]] = {}
    for name, about, schema in _SHOWN.findall(text):
        try:
            parameters = json.loads(schema) if schema else None
        except ValueError:
            parameters = None
        known = found.get(name)
        if known is None or known["parameters"] is None:
            found[name] = {"name": name, "description": about, "parameters": parameters}
    return list(found.values())
