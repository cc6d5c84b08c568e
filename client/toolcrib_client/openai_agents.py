"""An agent's tools in the OpenAI Agents SDK: an agent that lists them anew before each request to the model.

agent = ToolcribAgent(name="assistant", crib=crib)
await Runner.run(agent, "…", run_config=RunConfig(tool_not_found_behavior="return_error_to_model"))
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from agents import Agent, FunctionTool, RunContextWrapper, Tool
from agents.tool_context import ToolContext

from toolcrib_client.aio import AsyncToolcrib
from toolcrib_client.live import LiveTools
from toolcrib_client.results import LoadedTool


@dataclass
class ToolcribAgent(Agent[Any]):
    """An `Agent` whose tools are its own `tools` and those of `crib`, which stays open.

    A failed call is told to the model as text. Errors that no model can mend, such as `Unauthorized`, end the run.

    Attributes:
        crib: whose tools.
        discovery: offer search_tools, describe_tool, ready and call_tool instead of the view.
        patience: seconds to go on asking a registry that does not answer.
    """

    crib: AsyncToolcrib | None = None
    discovery: bool = False
    patience: float = 30.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.crib is None:
            raise TypeError("ToolcribAgent takes `crib`, an AsyncToolcrib")
        self._live = LiveTools(self.crib, discovery=self.discovery, patience=self.patience)
        self._runs: WeakKeyDictionary[RunContextWrapper[Any], LiveTools] = WeakKeyDictionary()

    async def get_all_tools(self, run_context: RunContextWrapper[Any]) -> list[Tool]:
        """The agent's own tools and the view as it is now; the SDK asks for them in each turn."""
        # READY tools are those of one run.
        live = self._runs.setdefault(run_context, self._live.for_run())
        own = await super().get_all_tools(run_context)
        return [*own, *(await live.offered(lambda tool: _function_tool(live, tool))).values()]


def _function_tool(live: LiveTools, tool: LoadedTool) -> FunctionTool:
    async def invoke(_: ToolContext[Any], arguments: str) -> str:
        return (await live.call(tool.model_name, arguments)).text()

    return FunctionTool(
        name=tool.model_name,
        description=tool.description,
        params_json_schema=dict(tool.input_schema),
        on_invoke_tool=invoke,
        # A strict schema has every field required: others than the tool's author wrote.
        strict_json_schema=False,
    )
