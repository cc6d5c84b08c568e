"""An agent that starts with a URL and a token and learns everything else. It needs no model.

usage: python examples/agents/dynamic_agent.py REGISTRY-URL TOKEN-FILE
"""

from __future__ import annotations

import sys

from toolcrib_runner import (
    DynamicToolAgent,
    InvalidArguments,
    NotPermitted,
    RunnerError,
    TokenFile,
    ToolNotFound,
)


def main(url: str, token_file: str) -> None:
    """Discover, call, misuse, and say what was used.

    Raises:
        RunnerError: the registry is away, the token is none, or the tool is not granted.
        ValueError: the URL is none.
    """
    with DynamicToolAgent("safecracker", TokenFile(token_file), url) as agent:
        print(agent.generate_tool_prompt_context())
        print(agent.use_tool("calculator", expression="310 / 4.5"))
        try:
            agent.use_tool("calculator", expresion="1")
        except InvalidArguments as error:
            print(f"refused before any request: {error.code}")
        try:
            agent.use_tool("database_query", query="select 1")
        except (ToolNotFound, NotPermitted) as error:
            print(f"not mine: {error.code}")
        change = agent.rediscover()
        print(f"gained {sorted(change.gained)}, lost {sorted(change.lost)}")
        print(agent.get_usage_stats())


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python examples/agents/dynamic_agent.py REGISTRY-URL TOKEN-FILE")
    try:
        main(*sys.argv[1:])
    except RunnerError as error:
        sys.exit(f"{error.code}: {error}")
    except ValueError as error:
        sys.exit(f"error: {error}")
