"""An agent of LlamaIndex whose tools are retrieved over MCP in each step."""

import asyncio
from collections.abc import Sequence
from importlib.metadata import version
from itertools import count
from typing import Any

import httpx2
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage, ChatResponse
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.objects import ObjectRetriever
from llama_index.core.tools import AsyncBaseTool
from llama_index.tools.mcp import BasicMCPClient, McpToolSpec
from pipe import TOKEN, URL, obey, turn

NUMBERS = count()


class Live(ObjectRetriever):
    """All tools, as they are now; the agent asks in each step."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self._client = BasicMCPClient(URL, http_client=http)

    async def aretrieve(self, _: Any) -> list[Any]:
        """Listing does no harm, so it is tried again for half a minute."""
        for left in range(30, -1, -1):
            try:
                return list(await McpToolSpec(self._client).to_tool_list_async())
            except Exception:
                if left == 0:
                    raise
                await asyncio.sleep(1)
        raise AssertionError


class Piped(MockFunctionCallingLLM):
    """Asks the pipe."""

    async def achat_with_tools(
        self, tools: Sequence[AsyncBaseTool], chat_history: Any = None, **_: Any
    ) -> ChatResponse:
        """One turn."""
        results: list[str] = []
        for message in reversed(chat_history):
            if message.role != "tool":
                break
            results.insert(0, str(message.content))
        names = [tool.metadata.to_openai_tool()["function"]["name"] for tool in tools]
        reply = await turn(names, results)
        calls = [
            ToolSelection(tool_id=f"call-{next(NUMBERS)}", tool_name=c["name"], tool_kwargs=c["arguments"])
            for c in reply.get("calls", ())
        ]
        return ChatResponse(
            message=ChatMessage(
                role="assistant", content=reply.get("text", ""), additional_kwargs={"tool_calls": calls}
            )
        )


async def run() -> str:
    """One run."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(30, read=300)) as http:
        agent = FunctionAgent(tool_retriever=Live(http), llm=Piped(), streaming=False, timeout=120)
        handler = agent.run("work", max_iterations=100)
        try:
            return str(await handler)
        except asyncio.CancelledError:
            await handler.cancel_run()
            raise


asyncio.run(obey(version("llama-index-core"), run))
