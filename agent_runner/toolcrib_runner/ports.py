"""What the runner needs from outside: a registry, a model, somebody who counts, and what they exchange."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from toolcrib_runner.discovery import Discovered, DiscoveredTool, Rediscovery

Message = dict[str, Any]
"""A chat message in the shape of OpenAI's chat completions."""
Function = dict[str, Any]
"""An entry of `tools` in the shape of OpenAI's chat completions."""


class Registry(Protocol):
    """The registry as one agent sees it. All methods may be called from several threads."""

    def discover(self, etag: str | None = None) -> Discovered | None:
        """The agent's tools; None where nothing changed since `etag`.

        Raises:
            RegistryError: there is no usable answer; what is known so far stays valid.
            TokenUnavailable: there is no token to ask with.
        """

    def call(self, tool: DiscoveredTool, arguments: Mapping[str, Any]) -> Any:
        """Call the tool and return its answer: parsed JSON, or text.

        Raises:
            ToolError: this tool could not be used.
            RegistryError: the registry could not be asked.
            TokenUnavailable: there is no token to ask with.
        """

    def input_schemas(self, names: Sequence[str]) -> Mapping[str, dict[str, Any]]:
        """The full input schemas of listed tools, as far as the registry gives them: enums, items, bounds.

        Raises:
            RegistryError: there is no usable answer.
            TokenUnavailable: there is no token to ask with.
        """

    def names(self, ids: Sequence[str]) -> Mapping[str, str]:
        """Tool id → listed name, of those of these tools that the agent has.

        Raises:
            RegistryError: there is no usable answer.
            TokenUnavailable: there is no token to ask with.
        """

    def is_idempotent(self, name: str) -> bool:
        """Whether a listed tool says that a call may be repeated without another effect (MCP's idempotentHint or readOnlyHint).

        Raises:
            RegistryError: there is no usable answer.
            TokenUnavailable: there is no token to ask with.
        """

    def search(self, query: str, limit: int) -> Sequence[str]:
        """Listed names of the agent's tools that fit the query, best first; empty where none fits.

        Raises:
            RegistryError: there is no usable answer.
            TokenUnavailable: there is no token to ask with.
        """

    def watch(self) -> AbstractContextManager[Iterator[str]]:
        """A live stream of event names; each means that the agent's tools may have changed.

        Entering raises like `discover`; iterating ends when the registry ends the stream.
        """

    def interrupt(self) -> None:
        """End a running `watch` from another thread, now."""

    def close(self) -> None:
        """Give up all connections; nothing may be called afterwards."""


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A function that the model wants called. `arguments` is the text it wrote: JSON, if all is well."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply of the model, with the tokens it took."""

    text: str = ""
    calls: tuple[FunctionCall, ...] = ()
    finish_reason: str = "stop"
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    """Of the prompt's tokens, those that the endpoint had kept from an earlier request."""
    model: str = ""


class Model(Protocol):
    """A model behind an OpenAI-compatible endpoint."""

    def complete(self, messages: Sequence[Message], functions: Sequence[Function], timeout: float) -> Reply:
        """One chat completion within `timeout` seconds. No retries: the caller decides about those.

        Raises:
            ModelUnavailable: no reply now; trying again may help.
            ModelRefused: trying again does not help.
        """

    def close(self) -> None:
        """Give up all connections."""


class Observer:
    """Told what happens; this one does nothing. `RunnerMetrics` counts."""

    def discovered(self, agent: str, outcome: str, tools: int) -> None:
        """A discovery ended: changed, unchanged or failed."""

    def changed(self, agent: str, change: Rediscovery) -> None:
        """A discovery found other tools than the one before; the first one has gained all of them."""

    def following(self, agent: str, connected: bool) -> None:
        """The live stream of the agent's tools was opened or lost."""

    def called(self, agent: str, tool: str, outcome: str, seconds: float) -> None:
        """A call of a tool ended: ok, or the code of its error. `tool` is a discovered name, or `unknown`."""

    def replied(
        self, agent: str, mode: str, phase: str, outcome: str, seconds: float, reply: Reply | None
    ) -> None:
        """A request to the model ended: ok, or the code of its error. `phase` is discovery or execution."""
