"""An agent's tools in LangChain: middleware that lists them anew before each request to the model, and tools for graphs.

agent = create_agent(model, middleware=[ToolcribMiddleware(crib)])
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command

from toolcrib_client.aio import AsyncToolcrib
from toolcrib_client.live import LiveTools, bounded
from toolcrib_client.results import LoadedTool


async def structured_tools(
    crib: AsyncToolcrib, *, discovery: bool = False, patience: float = 30.0
) -> list[BaseTool]:
    """The view as it is now, for a graph of your own; each call is decided when it is made.

    Args:
        crib: whose tools; it stays open.
        discovery: give search_tools, describe_tool, ready and call_tool instead of the view.
        patience: seconds to go on asking a registry that does not answer.
    """
    live = LiveTools(crib, discovery=discovery, patience=patience)
    return list((await live.offered(lambda tool: _structured(live, tool))).values())


class ToolcribMiddleware(AgentMiddleware[Any, Any, Any]):
    """Offers the view, or with `discovery` the functions that find and call tools, beside the agent's own tools.

    A failed call is told to the model as a message with status `error`. Errors that no model can mend, such as
    `Unauthorized`, end the run. The agent runs async: `ainvoke`, `astream`. READY tools are those of this middleware:
    with `discovery`, make one for each run.
    """

    def __init__(self, crib: AsyncToolcrib, *, discovery: bool = False, patience: float = 30.0) -> None:
        super().__init__()
        self._live = LiveTools(crib, discovery=discovery, patience=patience)
        self._offered: dict[str, BaseTool] = {}

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """Add the view as it is now."""
        self._offered = await self._live.offered(lambda tool: _structured(self._live, tool))
        return await handler(request.override(tools=[*request.tools, *self._offered.values()]))

    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]],
    ) -> ToolMessage | Command[Any]:
        """Call one of these tools; the agent's own are left alone."""
        if request.tool is None and (tool := self._offered.get(request.tool_call["name"])) is not None:
            request = request.override(tool=tool)
        return await handler(request)


class _Tool(StructuredTool):
    def _to_args_and_kwargs(
        self, tool_input: str | dict[str, Any], tool_call_id: str | None
    ) -> tuple[tuple[str, ...], dict[str, Any]]:
        # Arguments may be named self, config or run_manager, which LangChain keeps for itself.
        return (), {"arguments": tool_input}


def _structured(live: LiveTools, tool: LoadedTool) -> BaseTool:
    bounded(tool.input_schema)

    async def call(arguments: dict[str, Any]) -> Any:
        answer = await live.call(tool.model_name, arguments)
        if answer.failed:
            raise ToolException(answer.text())
        return answer.text()

    made = _Tool(
        name=tool.model_name,
        description=tool.description,
        args_schema=dict(tool.input_schema),
        coroutine=call,
        handle_tool_error=True,
    )
    # What a chat model does with it: a schema that it refuses would cost the whole list.
    convert_to_openai_tool(made)
    return made
