"""A model endpoint of tests: chat completions over real HTTP, from a function of the request.

`working` plays a model that searches, chooses and calls, in any mode and dialect. It reads the prompts that the
runner sends and nothing else.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from stub_server import Answer, Asked, answering

Message = dict[str, Any]
Said = Callable[[dict[str, Any]], Message]


def function(name: str, arguments: Mapping[str, Any] | str) -> Message:
    """A reply that calls one function."""
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    call = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": written}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def text(content: str) -> Message:
    """A reply of text."""
    return {"role": "assistant", "content": content}


class Endpoint:
    """What was asked, and where."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[dict[str, Any]] = []

    @property
    def system(self) -> list[str]:
        """The first message of every request."""
        return [request["messages"][0]["content"] for request in self.requests]


def answer(message: Message, **usage: Any) -> Answer:
    """A completion that says this."""
    document = {
        "id": "1", "object": "chat.completion", "created": 0, "model": "stub",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
    }  # fmt: skip
    return Answer(json.dumps(document | ({"usage": usage} if usage else {})).encode())


@contextmanager
def serving(said: Said | Sequence[Message]) -> Iterator[Endpoint]:
    """Serve on loopback; a sequence is said in its order, and its last message again and again."""
    replies = [] if callable(said) else list(said)
    endpoint = Endpoint("")

    def respond(asked: Asked) -> Answer:
        if asked.method == "GET":
            return Answer(b'{"object": "list", "data": []}')
        request = asked.json()
        endpoint.requests.append(request)
        message = said(request) if callable(said) else replies.pop(0) if len(replies) > 1 else replies[0]
        size = len(json.dumps(request))
        return answer(
            message,
            prompt_tokens=size // 4,
            completion_tokens=5,
            total_tokens=size // 4 + 5,
            prompt_tokens_details={"cached_tokens": 7},
        )

    with answering(respond) as port:
        endpoint.url = f"http://127.0.0.1:{port}/v1"
        yield endpoint


def results(messages: Sequence[Message]) -> list[str]:
    """What came of calls, without the words around it."""
    found = []
    for message in messages[1:]:
        content = str(message.get("content") or "")
        if message["role"] == "tool":
            found.append(content)
        elif message["role"] == "user" and content.startswith("Result of "):
            found.append(content.split("\n", 1)[1])
    return found


Call = tuple[str, Callable[[list[str]], dict[str, Any]]]


def working(dialect: str, searches: Sequence[str], calls: Sequence[Call]) -> Said:
    """A model that searches for these things, takes the tools of these calls, makes them, and says the last result."""
    names = [name for name, _ in calls]

    def say(request: dict[str, Any]) -> Message:
        messages, offered = request["messages"], [t["function"]["name"] for t in request.get("tools", ())]
        system = messages[0]["content"] if messages[0]["role"] == "system" else ""
        conversation = [m for m in messages if m["role"] != "system"]
        if "First find tools" in system:
            if len(conversation) == 1:
                return discover(
                    "search_tools", "SEARCH: " + "; ".join(searches), {"query": "; ".join(searches)}
                )
            return discover("ready", "READY: " + ", ".join(names), {"names": names})
        so_far = results(conversation)
        if len(so_far) == len(calls):
            return text(f"The answer is {so_far[-1]}.")
        name, arguments = calls[len(so_far)]
        given = arguments(so_far)
        if dialect == "text":
            return text(f"CALL: {name} {json.dumps(given)}")
        if dialect == "lenient":
            return text(f"```json\n{json.dumps({'name': name, 'arguments': given})}\n```")
        return (
            function("call_tool", {"name": name, "arguments": given})
            if "call_tool" in offered
            else function(name, given)
        )

    def discover(native: str, line: str, arguments: dict[str, Any]) -> Message:
        if dialect == "text":
            return text(line)
        if dialect == "lenient":
            return text(json.dumps({"name": native, "arguments": arguments}))
        return function(native, arguments)

    return say


def numbers(content: str) -> list[float]:
    """The numbers of a result."""
    return [float(n) for n in re.findall(r"-?\d+(?:\.\d+)?", content)]
