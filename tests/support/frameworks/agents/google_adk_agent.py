"""An agent of Google's ADK with its MCP toolset, which lists the tools in each step."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from importlib.metadata import version
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmCapabilities, LlmRequest, LlmResponse
from google.adk.runners import InMemoryRunner
from google.adk.tools.mcp_tool import McpToolset, StreamableHTTPConnectionParams
from google.genai import types
from pipe import TOKEN, URL, obey, turn


class Piped(BaseLlm):
    """Asks the pipe."""

    model: str = "pipe"

    @property
    def capabilities(self) -> LlmCapabilities:
        """None."""
        return LlmCapabilities(output_schema_and_tools=False)

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """One turn."""
        parts = (llm_request.contents[-1].parts or []) if llm_request.contents else []
        results = [str(p.function_response.response) for p in parts if p.function_response]
        declared = [
            declaration.name
            for tool in llm_request.config.tools or []
            for declaration in getattr(tool, "function_declarations", None) or []
        ]
        reply = await turn(declared, results)
        said = [
            types.Part(function_call=types.FunctionCall(name=call["name"], args=call["arguments"]))
            for call in reply.get("calls", ())
        ]
        said += [types.Part(text=reply["text"])] if "text" in reply else []
        yield LlmResponse(content=types.Content(role="model", parts=said))


async def run() -> str:
    """One run."""
    params = StreamableHTTPConnectionParams(url=URL, headers={"Authorization": f"Bearer {TOKEN}"})
    toolset = McpToolset(connection_params=params)
    agent = LlmAgent(name="agent", model=Piped(), tools=[toolset])
    try:
        async with InMemoryRunner(agent, app_name="app") as runner:
            session = await runner.session_service.create_session(app_name="app", user_id="user")
            asked = types.Content(role="user", parts=[types.Part(text="work")])
            last: Any = None
            async with aclosing(
                runner.run_async(user_id="user", session_id=session.id, new_message=asked)
            ) as events:
                async for event in events:
                    last = event
            return str(last.content.parts[0].text)
    finally:
        await toolset.close()


asyncio.run(obey(version("google-adk"), run))
