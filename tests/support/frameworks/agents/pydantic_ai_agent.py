"""An agent of Pydantic AI with the adapter; its model takes schemas without references alone, as several providers do."""

import asyncio
from importlib.metadata import version

from pipe import DISCOVERY, TOKEN, URL, obey, turn
from pydantic_ai import Agent, InlineDefsJsonSchemaTransformer, ModelProfile
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from toolcrib_client import AsyncToolcrib
from toolcrib_client.pydantic_ai import ToolcribToolset


async def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Ask the pipe."""
    last = messages[-1]
    assert isinstance(last, ModelRequest)
    # in 2.49 refused arguments come as a part of their own
    results = [
        part.model_response_str() if isinstance(part, ToolReturnPart) else part.model_response()
        for part in last.parts
        if part.part_kind in ("tool-return", "retry-prompt")
    ]
    reply = await turn([tool.name for tool in info.function_tools], results)
    calls = [ToolCallPart(call["name"], call["arguments"]) for call in reply.get("calls", ())]
    return ModelResponse([*calls, *([TextPart(reply["text"])] if "text" in reply else [])])


async def main() -> None:
    """Make the agent and obey."""
    async with AsyncToolcrib(URL, lambda: TOKEN) as crib:
        profile = ModelProfile(json_schema_transformer=InlineDefsJsonSchemaTransformer)
        agent = Agent(
            FunctionModel(model, profile=profile), toolsets=[ToolcribToolset(crib, discovery=DISCOVERY)]
        )

        async def run() -> str:
            return (await agent.run("work")).output

        await obey(version("pydantic-ai-slim"), run)


asyncio.run(main())
