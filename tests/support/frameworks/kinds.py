"""The frameworks that are tried: the environment of each, its agent, and the ways in which it gets its tools."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from frameworks.agent import ROOT, SCRIPTS
from mcp_peers import environments

LOCKS = Path(__file__).parent / "locks"
TYPESCRIPT = ROOT / "examples" / "agents" / "typescript" / "agent.ts"


class Way(StrEnum):
    """How an agent gets its tools."""

    TOOLS = "tools"
    DISCOVERY = "discovery"
    MCP = "mcp"

    @property
    def label(self) -> str:
        """In the table."""
        return {"tools": "`tools`", "discovery": "`discovery=True`", "mcp": "MCP"}[self]

    def url(self, registry: str) -> str:
        """Where the agent goes."""
        return f"{registry}/mcp/direct" if self is Way.MCP else registry


ADAPTER = (Way.TOOLS, Way.DISCOVERY)


@dataclass(frozen=True)
class Framework:
    """A framework by the stem of its lock; `script` is in agents/."""

    name: str
    title: str
    script: str
    ways: tuple[Way, ...] = (Way.MCP,)
    shared: Path | None = None
    """The lock of an environment that others use, too."""

    @property
    def adapter(self) -> bool:
        """Whether the client has an adapter for it."""
        return self.ways == ADAPTER

    @property
    def lock(self) -> Path:
        """Its packages."""
        return self.shared or LOCKS / f"{self.name}.txt"

    @property
    def node(self) -> bool:
        """Whether it is of Node."""
        return self.script.endswith(".mjs")

    def digest(self) -> str:
        """Of what a recipe's row rests on."""
        parts = [self.lock, SCRIPTS / self.script, TYPESCRIPT if self.node else SCRIPTS / "pipe.py"]
        return hashlib.sha256(b"".join(part.read_bytes() for part in parts)).hexdigest()[:12]

    def provide(self) -> None:
        """Make its environment where it is missing. Raises PeersMissingError."""
        if self.node:
            environments.provide()
        else:
            environments.provide_locked(self.lock)

    def command(self, folder: Path) -> list[str]:
        """What runs its agent; `folder` is for files of its own."""
        if self.node:
            # Node looks for packages beside the script alone.
            for file in (SCRIPTS / self.script, TYPESCRIPT):
                shutil.copy(file, folder)
            if not (folder / "node_modules").exists():
                (folder / "node_modules").symlink_to(environments.node_modules())
            return [str(environments.node()), str(folder / self.script)]
        return [str(environments.provide_locked(self.lock)), str(SCRIPTS / self.script)]


_ALL = (
    Framework("pydantic-ai", "Pydantic AI", "pydantic_ai_agent.py", ADAPTER),
    Framework("openai-agents", "OpenAI Agents SDK", "openai_agents_agent.py", ADAPTER),
    Framework("langchain", "LangChain", "langchain_agent.py", ADAPTER),
    Framework(
        "mcp", "`mcp`, the Python SDK", "mcp_agent.py", shared=environments.LOCKS / "python/current.txt"
    ),
    Framework("google-adk", "Google ADK", "google_adk_agent.py"),
    Framework("llama-index", "LlamaIndex", "llama_index_agent.py"),
    Framework("smolagents", "smolagents", "smolagents_agent.py"),
    Framework("claude-agent", "Claude Agent SDK", "claude_agent.py"),
    Framework(
        "typescript",
        "MCP's TypeScript SDK",
        "pipe.mjs",
        shared=environments.LOCKS / "npm/package-lock.json",
    ),
)
FRAMEWORKS: Mapping[str, Framework] = {framework.name: framework for framework in _ALL}
