"""Every error that the runner raises, as a tree.

RunnerError
├── ToolError                  one tool could not be used; carries tool, code, status, retry_after
│   ├── ToolNotFound           nothing of that name is among the discovered tools
│   ├── AmbiguousTool          several visible tools share the name; carries their ids
│   ├── InvalidArguments       the arguments do not fit; carries one problem each
│   ├── NotPermitted           not granted, or not any more
│   ├── NotOffered             a model called a tool that it has not chosen; no request was sent
│   ├── LimitReached           a limit of the grant is used up for now
│   ├── ToolUnavailable        the registry cannot reach the tool: no backend, no credential, refused address
│   └── UpstreamFailed         the tool was reached and failed
│       ├── UpstreamTimeout    it did not answer in time
│       └── ToolFailed         it answered with an error of its own
├── RegistryError              the registry did not answer as it should; carries code, status, retry_after
│   ├── Unauthorized           it does not accept the token
│   ├── RegistryUnavailable    it cannot be reached, or says that it cannot serve now
│   │   └── PolicyStale        it has heard no operator for too long and refuses calls
│   └── RegistryAnswerInvalid  its answer cannot be read
├── TokenUnavailable           the token source has no usable token
└── ModelError                 the model endpoint gave no reply
    ├── ModelUnavailable       it cannot be reached, is overloaded or failed; trying again may help
    └── ModelRefused           it refused the request; trying again does not help

No message contains a token or a key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class RunnerError(Exception):
    """The root: catch it to catch everything the runner raises on purpose."""

    code: str = "runner_error"
    request_id: str | None = None
    """Of the request that was answered like this: what to look for in the registry's log."""


class ToolError(RunnerError):
    """One tool could not be used; the agent itself goes on."""

    code = "tool_error"

    def __init__(
        self,
        tool: str,
        message: str,
        *,
        code: str | None = None,
        status: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.tool = tool
        self.code = code or type(self).code
        self.status = status
        self.retry_after = retry_after


class ToolNotFound(ToolError):
    """Nothing of that name is among the discovered tools."""

    code = "tool_not_found"


class AmbiguousTool(ToolError):
    """Several visible tools share the name; `.tool_ids` are theirs."""

    code = "ambiguous_name"
    tool_ids: tuple[str, ...] = ()


class InvalidArguments(ToolError):
    """The arguments do not fit the tool's parameters; `.problems` has one sentence each."""

    code = "invalid_arguments"
    problems: tuple[str, ...] = ()

    @classmethod
    def of(cls, tool: str, problems: Sequence[str]) -> InvalidArguments:
        """Found before any request was made."""
        error = cls(tool, f"{tool}: " + "; ".join(problems))
        error.problems = tuple(problems)
        return error


class NotPermitted(ToolError):
    """The tool is not granted to this agent, or not any more."""

    code = "not_permitted"


class LimitReached(ToolError):
    """A limit of the grant is used up for now; `.retry_after` says for how long, in seconds, if known."""

    code = "limit_reached"


class NotOffered(ToolError):
    """The model called a tool that it has not chosen; no request was sent."""

    code = "not_offered"


class ToolUnavailable(ToolError):
    """The registry cannot reach the tool: no backend, a credential still missing, an address it refuses."""

    code = "tool_unavailable"


class UpstreamFailed(ToolError):
    """The tool was called and failed."""

    code = "upstream_error"


class UpstreamTimeout(UpstreamFailed):
    """The tool did not answer in time."""

    code = "upstream_timeout"


class ToolFailed(UpstreamFailed):
    """The tool answered with an error of its own, usually about the arguments; `.answer` is its JSON, if it had one."""

    code = "tool_error"
    answer: Any = None


class RegistryError(RunnerError):
    """The registry did not answer as it should."""

    code = "registry_error"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        status: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code or type(self).code
        self.status = status
        self.retry_after = retry_after


class Unauthorized(RegistryError):
    """The registry does not accept the token: missing, expired or not from an issuer it knows."""

    code = "unauthorized"


class RegistryUnavailable(RegistryError):
    """The registry cannot be reached, or says that it cannot serve now."""

    code = "registry_unavailable"


class PolicyStale(RegistryUnavailable):
    """The registry has heard no operator for too long and refuses calls until it does."""

    code = "policy_stale"


class RegistryAnswerInvalid(RegistryError):
    """The registry's answer cannot be read: not the protocol, too large, a redirect."""

    code = "registry_answer_invalid"


class TokenUnavailable(RunnerError):
    """The token source has no usable token; the message says why, never what was read."""

    code = "token_unavailable"


class ModelError(RunnerError):
    """The model endpoint gave no reply."""

    code = "model_error"


class ModelUnavailable(ModelError):
    """The model endpoint cannot be reached, is overloaded or failed; `.retry_after` in seconds, if it said so."""

    code = "model_unavailable"

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ModelRefused(ModelError):
    """The model endpoint refused the request: key, model name, or what was sent."""

    code = "model_refused"
