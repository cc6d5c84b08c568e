"""An agent that discovers everything it is granted at run time, and keeps that current while it runs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Any, Self

from toolcrib import text
from toolcrib.telemetry import logs, tracing
from toolcrib_runner import arguments as argument_checks
from toolcrib_runner import discovery, errors
from toolcrib_runner.adapters.registry_http import RegistryHttp
from toolcrib_runner.discovery import DiscoveredTool, Rediscovery
from toolcrib_runner.errors import RegistryError, RunnerError, TokenUnavailable
from toolcrib_runner.follower import Follower, Pace
from toolcrib_runner.ports import Observer, Registry
from toolcrib_runner.session import prompt
from toolcrib_runner.tokens import StaticToken, TokenSource
from toolcrib_runner.usage import Usage, UsageStats

log = logging.getLogger(__name__)


class DynamicToolAgent:
    """An agent that knows a registry's address and a token, and learns everything else.

    It discovers its tools when it is made, follows changes in the background, and calls tools through the registry.
    All methods are synchronous and may be called from several threads at once. Close it, or use it in `with`.

    Args:
        name: what the agent calls itself, in statistics and metrics; the registry goes by the token alone.
        token: a bearer token, or a token source (any callable that returns one, such as `TokenFile`).
        discovery_url: the address whose `GET` lists the tools, for example `http://127.0.0.1:8080`.
        token_source: the same as a callable in `token`, by keyword.
        strict: raise where the first discovery fails. Else the agent starts without tools and keeps trying.
        follow: keep the tools current in the background; without it they change by `rediscover()` alone.
        call_hosts: `host:port` of listings that calls may go to directly, with the token; see `RegistryHttp`.
        ca_file: certificate authorities to verify the registry with, instead of the system's.
        timeout, call_timeout: seconds, for discoveries and for calls.
        on_change: called with each `Rediscovery` that changed something, on the thread that discovered.
        pace: how often to ask and to retry.
        observer: told of discoveries and calls; `RunnerMetrics` counts them.
        session: the session and turn that this is for, `ID/TURN`, as the registry's decision log is told.
        registry: another way to the registry than HTTP; `discovery_url` and tokens are then not used.
        usage: where calls are counted, such as `Usage(name, folder)`, whose counts outlive the process.
    """

    def __init__(
        self,
        name: str,
        token: str | TokenSource | None = None,
        discovery_url: str | None = None,
        *,
        token_source: TokenSource | None = None,
        strict: bool = False,
        follow: bool = True,
        call_hosts: Collection[str] = (),
        ca_file: str | None = None,
        timeout: float = 10.0,
        call_timeout: float = 310.0,
        on_change: Callable[[Rediscovery], object] | None = None,
        pace: Pace | None = None,
        observer: Observer | None = None,
        session: str | None = None,
        registry: Registry | None = None,
        usage: Usage | None = None,
    ) -> None:
        if registry is None:
            registry = RegistryHttp(
                _required(discovery_url),
                _source(token, token_source),
                call_hosts=call_hosts,
                ca_file=ca_file,
                timeout=timeout,
                call_timeout=call_timeout,
                session=session,
            )
            self._has_token = token is not None or token_source is not None
        else:
            self._has_token = True
        self.name = name
        self._registry = registry
        self._observer = observer or Observer()
        self._on_change = on_change
        self._usage = usage or Usage(name)
        self._asking = threading.Lock()
        self._changed = threading.Condition()
        self._tools: Mapping[str, DiscoveredTool] = MappingProxyType({})
        self._formerly: frozenset[str] = frozenset()
        self._etag: str | None = None
        self._discovered = False
        self._accepted = True
        self._last_error: RunnerError | None = None
        self._trouble = logs.Trouble(log)
        self._follower: Follower | None = None
        try:
            self._start(strict=strict, follow=follow, pace=pace or Pace())
        except BaseException:
            self.close()
            raise

    def _start(self, *, strict: bool, follow: bool, pace: Pace) -> None:
        try:
            self.rediscover()
        except (RegistryError, TokenUnavailable):
            if strict:
                raise
        if follow:
            self._follower = Follower(
                self._registry,
                self.rediscover,
                name=self.name,
                connected=lambda live: self._observer.following(self.name, live),
                pace=pace,
            )
            self._follower.start(discovered=self._discovered)

    @property
    def tools(self) -> Mapping[str, DiscoveredTool]:
        """The tools by name, as of the last discovery: a read-only snapshot that does not change under its reader."""
        return self._tools

    @property
    def discovered(self) -> bool:
        """Whether any discovery has succeeded yet."""
        return self._discovered

    @property
    def last_error(self) -> RunnerError | None:
        """Why the last discovery failed; None if it did not."""
        return self._last_error

    def rediscover(self) -> Rediscovery:
        """Ask the registry now, and say what was gained, lost and unchanged since the last answer.

        Raises:
            RegistryError: there was no usable answer; the tools stay as they were.
            TokenUnavailable: there is no token to ask with; the tools stay as they were.
        """
        with self._asking, tracing.span("discover", {"gen_ai.agent.name": self.name}) as span:
            try:
                found = self._registry.discover(self._etag)
            except (RegistryError, TokenUnavailable) as error:
                self._failed(error)
                raise
            span.set({"toolcrib.tools": len(found.tools) if found is not None else len(self._tools)})
            change = discovery.compare(self._tools, self._tools) if found is None else self._take(found)
            self._recovered(change)
        if change and self._on_change is not None:
            self._on_change(change)
        return change

    def _take(self, found: discovery.Discovered) -> Rediscovery:
        before = self._tools
        tools = {tool.name: tool for tool in sorted(found.tools, key=lambda t: t.name)}
        if found.skipped:
            log.warning(
                "agent %s: %d entries of the discovery answer are unreadable", self.name, found.skipped
            )
        accepted = found.authenticated or not self._has_token
        if self._accepted and not accepted:
            log.warning(
                "agent %s: the registry rejects its token (expired, or for another audience)", self.name
            )
        change = discovery.compare(before, tools)
        with self._changed:
            self._tools = MappingProxyType(tools)
            self._formerly = (self._formerly | frozenset(change.lost)) - frozenset(tools)
            self._etag = found.etag
            self._accepted = accepted
            self._changed.notify_all()
        return change

    def _failed(self, error: RunnerError) -> None:
        about = logs.about(agent=self.name, code=error.code)
        if self._discovered:
            told = "agent %s keeps its %d tools: %s"
            self._trouble.failed(told, self.name, len(self._tools), error, extra=about)
        else:
            self._trouble.failed("agent %s starts without tools: %s", self.name, error, extra=about)
        self._last_error = error
        self._observer.discovered(self.name, "failed", len(self._tools))

    def _recovered(self, change: Rediscovery) -> None:
        first, self._discovered = not self._discovered, True
        self._trouble.over(
            "agent %s: the registry is available again", self.name, extra=logs.about(agent=self.name)
        )
        self._last_error = None
        if change or first:
            log.info(
                "agent %s has %d tools: gained %s, lost %s, changed %s, unchanged %d; scopes %s",
                self.name, len(self._tools), _named(change.gained), _named(change.lost), _named(change.changed),
                len(change.unchanged) - len(change.changed),
                _named(sorted({scope for tool in self._tools.values() for scope in tool.scopes})),
                extra=logs.about(agent=self.name, tools=len(self._tools)),
            )  # fmt: skip
        if change:
            self._observer.changed(self.name, change)
        self._observer.discovered(self.name, "changed" if change else "unchanged", len(self._tools))
        with self._changed:
            self._changed.notify_all()

    def wait_for(self, wanted: Callable[[Mapping[str, DiscoveredTool]], bool], timeout: float) -> bool:
        """Wait until `wanted(tools)` holds after a discovery, at most `timeout` seconds; say whether it does."""
        with self._changed:
            return self._changed.wait_for(lambda: wanted(self._tools), timeout)

    def wait_until_discovered(self, timeout: float) -> bool:
        """Wait for the first successful discovery, at most `timeout` seconds; say whether there was one."""
        with self._changed:
            return self._changed.wait_for(lambda: self._discovered, timeout)

    def use_tool(self, tool_name: str, /, **arguments: Any) -> Any:
        """Call a tool and return its answer: parsed JSON, or text. See `call`."""
        return self.call(tool_name, arguments)

    def call(self, tool_name: str, arguments: Mapping[str, Any]) -> Any:
        """Call a tool with a mapping of arguments.

        Raises:
            ToolNotFound, InvalidArguments: before any request is made.
            NotPermitted: not granted; before any request where a discovery has said so already.
            ToolError: the tool could not be used, or failed.
            RegistryError: the registry could not be asked, or does not accept the token.
            TokenUnavailable: there is no token to ask with.
        """
        with logs.working_on(logs.request_id.get() or logs.new_request_id("call-")) as request_id:
            return self._call(tool_name, arguments, request_id)

    def _call(self, tool_name: str, arguments: Mapping[str, Any], request_id: str) -> Any:
        started = time.perf_counter()
        outcome, known = "ok", "unknown"
        try:
            tool = self._tool(tool_name)
            known = tool.name
            argument_checks.check(tool, arguments)
            result = self._registry.call(tool, arguments)
        except RunnerError as error:
            outcome = error.code
            if isinstance(error, RegistryError | errors.ToolError) and error.status is not None:
                error.request_id = request_id
            if isinstance(error, errors.UpstreamFailed):
                self._usage.count(known)
            if isinstance(error, errors.NotPermitted | errors.ToolNotFound) and self._follower is not None:
                self._follower.nudge()
            raise
        except BaseException:
            outcome = "interrupted"
            raise
        else:
            self._usage.count(tool.name)
            return result
        finally:
            self._observer.called(self.name, known, outcome, time.perf_counter() - started)

    def _tool(self, name: str) -> DiscoveredTool:
        if not self._discovered or (not self._accepted and name not in self._tools):
            # Nothing is known yet, or the token was refused: it may have been replaced since.
            self.rediscover()
        tool = self._tools.get(name)
        if tool is not None:
            return tool
        if not self._accepted:
            raise errors.Unauthorized("the registry does not accept this agent's token")
        if name in self._formerly:
            raise errors.NotPermitted(name, f"{name}: no longer available to this agent")
        raise errors.ToolNotFound(name, f"{name}: no such tool among the {len(self._tools)} discovered")

    def input_schemas(self, names: Sequence[str]) -> Mapping[str, dict[str, Any]]:
        """Full input schemas of discovered tools, for a model: the listing has names and types of parameters only.

        Raises:
            RegistryError, TokenUnavailable: there is no usable answer.
        """
        return self._registry.input_schemas([name for name in names if name in self._tools])

    def listed_names(self, names: Sequence[str]) -> tuple[str, ...]:
        """The same tools, each id (`namespace/name`) replaced by the name that the tool is listed by, where the agent has it.

        Raises:
            RegistryError, TokenUnavailable: there is no usable answer.
        """
        ids = [name for name in names if "/" in name and name not in self._tools]
        listed = self._registry.names(ids) if ids else {}
        return tuple(listed.get(name, name) for name in names)

    def is_idempotent(self, tool_name: str) -> bool:
        """Whether a discovered tool says that its calls may be repeated.

        Raises:
            RegistryError, TokenUnavailable: there is no usable answer.
        """
        return self._registry.is_idempotent(tool_name)

    def search(self, query: str, limit: int = 5) -> list[str]:
        """Names of discovered tools that fit the query, best first; empty where none fits.

        Raises:
            RegistryError, TokenUnavailable: there is no usable answer.
        """
        return [name for name in self._registry.search(query, limit) if name in self._tools][:limit]

    def get_usage_stats(self) -> dict[str, Any]:
        """`agent, total_tools_available, total_tool_calls, usage_by_tool, most_used_tool`; see `usage_stats`."""
        return self.usage_stats().as_dict()

    def usage_stats(self) -> UsageStats:
        """The agent's use of tools since it was made, or as its `usage` says; rediscoveries do not reset it."""
        return self._usage.stats(len(self._tools))

    def generate_tool_prompt_context(self) -> str:
        """The tools for a prompt, one line each; `No tools available.` where there are none."""
        return prompt.tool_context(self._tools.values())

    def close(self) -> None:
        """End the background threads and give up all connections. Closing twice does no harm."""
        follower, self._follower = self._follower, None
        if follower is not None:
            follower.close()
        self._registry.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"DynamicToolAgent({self.name!r}, {len(self._tools)} tools)"


def _named(names: Sequence[str], most: int = 20) -> str:
    """How many, and the first of them: other people's text, for a log."""
    if not names:
        return "0"
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{len(names)} ({', '.join(text.escape(name) for name in names[:most])}{more})"


def _required(discovery_url: str | None) -> str:
    if not discovery_url:
        raise ValueError("discovery_url is required")
    return discovery_url


def _source(token: str | TokenSource | None, token_source: TokenSource | None) -> TokenSource | None:
    if token is not None and token_source is not None:
        raise ValueError("pass token or token_source, not both")
    given = token if token is not None else token_source
    return StaticToken(given) if isinstance(given, str) else given
