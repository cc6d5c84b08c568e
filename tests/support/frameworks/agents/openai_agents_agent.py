"""An agent of the OpenAI Agents SDK with the adapter."""

import asyncio
import json
from importlib.metadata import version
from itertools import count
from typing import Any

from agents import Model, ModelResponse, RunConfig, Runner, Usage, set_tracing_disabled
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from pipe import DISCOVERY, TOKEN, URL, obey, turn

from toolcrib_client import AsyncToolcrib
from toolcrib_client.openai_agents import ToolcribAgent

NUMBERS = count()


class Piped(Model):
    """Asks the pipe."""

    async def get_response(self, *_: Any, input: Any, tools: Any, **__: Any) -> ModelResponse:
        """One turn."""
        results: list[str] = []
        for item in reversed(input if isinstance(input, list) else []):
            if item.get("type") != "function_call_output":
                break
            results.insert(0, str(item["output"]))
        reply = await turn([tool.name for tool in tools], results)
        output: list[Any] = [
            ResponseFunctionToolCall(
                type="function_call",
                call_id=f"call-{next(NUMBERS)}",
                name=call["name"],
                arguments=json.dumps(call["arguments"]),
            )
            for call in reply.get("calls", ())
        ]
        if "text" in reply:
            text = ResponseOutputText(type="output_text", text=reply["text"], annotations=[])
            output.append(
                ResponseOutputMessage(
                    type="message", id="m", role="assistant", status="completed", content=[text]
                )
            )
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        """Not asked for."""
        raise NotImplementedError


async def main() -> None:
    """Make the agent and obey."""
    set_tracing_disabled(True)
    async with AsyncToolcrib(URL, lambda: TOKEN) as crib:
        agent = ToolcribAgent(name="agent", model=Piped(), crib=crib, discovery=DISCOVERY)
        config = RunConfig(tool_not_found_behavior="return_error_to_model")

        async def run() -> str:
            return str((await Runner.run(agent, "work", run_config=config, max_turns=50)).final_output)

        await obey(version("openai-agents"), run)


asyncio.run(main())
