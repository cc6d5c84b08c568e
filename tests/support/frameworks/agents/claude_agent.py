"""An agent of the Claude Agent SDK with its MCP client, which lists the tools once and again where the server tells of a change.

Its model is a server on loopback that speaks Anthropic's messages and asks the pipe.
"""

import asyncio
import json
import os
import socket
import tempfile
from collections.abc import AsyncIterator
from importlib.metadata import version
from itertools import count
from typing import Any

import uvicorn
from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query
from pipe import TOKEN, URL, obey, turn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

PREFIX = "mcp__toolcrib__"
NUMBERS = count()
USAGE = {"input_tokens": 1, "output_tokens": 1}


def _event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def _text(block: Any) -> str:
    content = block.get("content")
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content or ())


async def _streamed(blocks: list[dict[str, Any]], model: str) -> AsyncIterator[bytes]:
    message = {
        "id": f"msg_{next(NUMBERS)}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
    }
    yield _event(
        "message_start", message={**message, "stop_reason": None, "stop_sequence": None, "usage": USAGE}
    )
    for i, block in enumerate(blocks):
        if block["type"] == "text":
            yield _event("content_block_start", index=i, content_block={"type": "text", "text": ""})
            delta = {"type": "text_delta", "text": block["text"]}
        else:
            yield _event("content_block_start", index=i, content_block={**block, "input": {}})
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        yield _event("content_block_delta", index=i, delta=delta)
        yield _event("content_block_stop", index=i)
    calls = any(block["type"] == "tool_use" for block in blocks)
    stop = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    yield _event("message_delta", delta=stop, usage=USAGE)
    yield _event("message_stop")


async def messages(request: Request) -> Response:
    """One turn; requests without our tools are the program's own."""
    asked = await request.json()
    names = [tool["name"] for tool in asked.get("tools", ()) if tool["name"].startswith(PREFIX)]
    content = asked["messages"][-1]["content"]
    results = [_text(b) for b in content if b["type"] == "tool_result"] if isinstance(content, list) else []
    blocks: list[dict[str, Any]] = [{"type": "text", "text": "yes"}]
    if names or results:
        reply = await turn([name.removeprefix(PREFIX) for name in names], results)
        blocks = [
            {
                "type": "tool_use",
                "id": f"toolu_{next(NUMBERS)}",
                "name": PREFIX + call["name"],
                "input": call["arguments"],
            }
            for call in reply.get("calls", ())
        ] or [{"type": "text", "text": reply["text"]}]
    return StreamingResponse(_streamed(blocks, asked["model"]), media_type="text/event-stream")


async def counted(_: Request) -> Response:
    """Tokens of a prompt."""
    return JSONResponse({"input_tokens": 1})


async def run() -> str:
    """One run, with a home folder of its own."""
    home, last = tempfile.mkdtemp(), ""
    options = ClaudeAgentOptions(
        mcp_servers={
            "toolcrib": {"type": "http", "url": URL, "headers": {"Authorization": f"Bearer {TOKEN}"}}
        },
        strict_mcp_config=True,
        tools=[],
        allowed_tools=["mcp__toolcrib"],
        setting_sources=[],
        max_turns=60,
        cwd=home,
        env={
            "ANTHROPIC_BASE_URL": os.environ["MODEL_URL"],
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "ENABLE_TOOL_SEARCH": "false",
            "HOME": home,
        },
    )
    async for message in query(prompt="work", options=options):
        if isinstance(message, ResultMessage):
            last = str(message.result)
    return last


async def main() -> None:
    """Serve the model, and obey."""
    listening = socket.create_server(("127.0.0.1", 0))
    os.environ["MODEL_URL"] = f"http://127.0.0.1:{listening.getsockname()[1]}"
    app = Starlette(
        routes=[
            Route("/v1/messages", messages, methods=["POST"]),
            Route("/v1/messages/count_tokens", counted, methods=["POST"]),
        ]
    )
    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    serving = asyncio.create_task(server.serve([listening]))
    await obey(version("claude-agent-sdk"), run)
    server.should_exit = True
    await serving


asyncio.run(main())
