"""An agent of LangChain with the adapter's middleware, on LangGraph."""

import asyncio
from importlib.metadata import version
from itertools import count
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool
from pipe import DISCOVERY, TOKEN, URL, obey, turn

from toolcrib_client import AsyncToolcrib
from toolcrib_client.langchain import ToolcribMiddleware

NUMBERS = count()


class Piped(BaseChatModel):
    """Asks the pipe; binds tools as chat models do."""

    @property
    def _llm_type(self) -> str:
        return "pipe"

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        """As a chat model of a provider."""
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools])

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        raise NotImplementedError

    async def _agenerate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **options: Any
    ) -> ChatResult:
        results: list[str] = []
        for message in reversed(messages):
            if not isinstance(message, ToolMessage):
                break
            results.insert(0, message.text)
        tools = [tool["function"]["name"] for tool in options.get("tools", ())]
        reply = await turn(tools, results)
        calls = [
            {"name": call["name"], "args": call["arguments"], "id": f"call-{next(NUMBERS)}"}
            for call in reply.get("calls", ())
        ]
        message = AIMessage(content=reply.get("text", ""), tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=message)])


async def main() -> None:
    """Make the agent and obey."""
    async with AsyncToolcrib(URL, lambda: TOKEN) as crib:

        async def run() -> str:
            agent = create_agent(Piped(), middleware=[ToolcribMiddleware(crib, discovery=DISCOVERY)])
            asked = {"messages": [{"role": "user", "content": "work"}]}
            return (await agent.ainvoke(asked, {"recursion_limit": 200}))["messages"][-1].text

        await obey(f"{version('langchain')}, LangGraph {version('langgraph')}", run)


asyncio.run(main())
