"""An agent's tools in Pydantic AI: a toolset that lists them anew before each request to the model.

agent = Agent(model, toolsets=[ToolcribToolset(crib)])
"""

from __future__ import annotations

import json
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema

from toolcrib_client.aio import AsyncToolcrib
from toolcrib_client.live import LiveTools, bounded
from toolcrib_client.results import LoadedTool

# The registry checks the arguments, and says what is wrong with them.
_ANYTHING = SchemaValidator(core_schema.dict_schema())


class ToolcribToolset(AbstractToolset[Any]):
    """The live view, or with `discovery` the functions that find and call tools.

    Arguments that the registry refuses become `ModelRetry`, other failures `ToolFailed`; errors that no model can mend,
    such as `Unauthorized`, end the run.

    Args:
        crib: whose tools; it stays open.
        discovery: offer search_tools, describe_tool, ready and call_tool instead of the view.
        max_retries: of one tool after refused arguments, in a row.
        patience: seconds to go on asking a registry that does not answer.
        id: names the toolset where a run is durable.
    """

    def __init__(
        self,
        crib: AsyncToolcrib,
        *,
        discovery: bool = False,
        max_retries: int = 3,
        patience: float = 30.0,
        id: str | None = None,
    ) -> None:
        self._live = LiveTools(crib, discovery=discovery, patience=patience)
        self._max_retries = max_retries
        self._id = id

    @property
    def id(self) -> str | None:
        """As it was given."""
        return self._id

    async def for_run(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        """The toolset of one run, which has READY tools of its own."""
        made = ToolcribToolset(self._live.crib, max_retries=self._max_retries, id=self._id)
        made._live = self._live.for_run()
        return made

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """The view as it is now; a tool whose schema the model's profile refuses is left out with a warning."""
        transformer = getattr(ctx.model, "profile", {}).get("json_schema_transformer")

        def made(tool: LoadedTool) -> ToolsetTool[Any]:
            # A copy of plain dicts: transformers change what they are given.
            schema = json.loads(json.dumps(tool.input_schema, default=dict))
            if transformer is not None:
                bounded(schema)
                transformer(schema, strict=None).walk()
            about = ToolDefinition(
                name=tool.model_name, parameters_json_schema=schema, description=tool.description
            )
            return ToolsetTool(
                toolset=self, tool_def=about, max_retries=self._max_retries, args_validator=_ANYTHING
            )

        return await self._live.offered(made)

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Call it at the registry."""
        answer = await self._live.call(name, tool_args)
        if answer.mendable:
            raise ModelRetry(answer.text())
        if answer.failed:
            raise ToolFailed(answer.text())
        return answer.value
