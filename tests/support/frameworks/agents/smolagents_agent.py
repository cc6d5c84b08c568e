"""An agent of smolagents with its MCP client, which lists the tools once."""

import asyncio
from importlib.metadata import version
from itertools import count
from typing import Any

from pipe import TOKEN, URL, obey, turn
from smolagents import ChatMessage, MCPClient, Model, ToolCallingAgent
from smolagents.models import ChatMessageToolCall, ChatMessageToolCallFunction, get_tool_json_schema
from smolagents.monitoring import LogLevel

NUMBERS = count()


class Piped(Model):
    """Asks the pipe, which is on another thread's loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop

    def generate(self, messages: list[Any], tools_to_call_from: Any = None, **_: Any) -> ChatMessage:
        """One turn."""
        last = messages[-1].content
        text = last if isinstance(last, str) else "\n".join(part.get("text", "") for part in last)
        names = [get_tool_json_schema(tool)["function"]["name"] for tool in tools_to_call_from]
        asked = turn([name for name in names if name != "final_answer"], [text])
        reply = asyncio.run_coroutine_threadsafe(asked, self._loop).result()
        calls = reply.get("calls") or [{"name": "final_answer", "arguments": {"answer": reply["text"]}}]
        return ChatMessage(
            role="assistant",
            tool_calls=[
                ChatMessageToolCall(
                    id=f"call-{next(NUMBERS)}",
                    type="function",
                    function=ChatMessageToolCallFunction(name=call["name"], arguments=call["arguments"]),
                )
                for call in calls
            ],
        )


async def run() -> str:
    """One run, in a thread: smolagents is synchronous."""
    loop = asyncio.get_running_loop()

    def work() -> str:
        server = {"url": URL, "transport": "streamable-http", "headers": {"Authorization": f"Bearer {TOKEN}"}}
        with MCPClient(server, structured_output=False) as tools:
            agent = ToolCallingAgent(tools, Piped(loop), max_steps=50, verbosity_level=LogLevel.OFF)
            return str(agent.run("work"))

    return await asyncio.to_thread(work)


asyncio.run(obey(version("smolagents"), run))
