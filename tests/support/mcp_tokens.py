"""`make mcp-tokens`: what the meta-tools of `/mcp` take in a model's context, in tokens (o200k) of the `tools` array.

Exits with 1 where the default set takes more than `MOST`. Nothing is downloaded: `bpe-openai` holds the encoding.
"""

import sys
import warnings
from collections.abc import Sequence
from typing import Any

import orjson

from toolcrib_registry.mcp import tool_texts

with warnings.catch_warnings():  # it reads its files in a way that Python 3.11 and 3.12 call deprecated
    warnings.simplefilter("ignore", DeprecationWarning)
    import bpe_openai

MOST = 400
"""Of the default set."""
SETS: dict[str, dict[str, bool]] = {
    "default": {},
    "mcp.split_calls": {"split_calls": True},
    "mcp.compatible_names": {"compatible_names": True},
    "both": {"split_calls": True, "compatible_names": True},
}


def tokens(tools: Sequence[Any]) -> int:
    """Tokens of tools as JSON without white space."""
    return len(bpe_openai.get_encoding("o200k_base").encode(orjson.dumps(list(tools)).decode()))


def main() -> int:
    """Print each set, and each tool by itself."""
    every: dict[str, Any] = {}
    print("tokens (o200k)  tools of /mcp")
    for name, options in SETS.items():
        tools = tool_texts.offered(**options)
        every |= {tool["name"]: tool for tool in tools}
        print(f"{tokens(tools):>14}  {name}: {', '.join(tool['name'] for tool in tools)}")
    for name, tool in every.items():
        print(f"{tokens([tool]):>14}  {name} by itself")
    return int(tokens(tool_texts.offered()) > MOST)


if __name__ == "__main__":
    sys.exit(main())
