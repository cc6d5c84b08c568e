"""The tools that Toolcrib grants to one agent.

from toolcrib_client import Toolcrib

with Toolcrib("http://127.0.0.1:8765", lambda: token) as crib:
    hit = crib.search("work out a percentage").hits[0]
    print(crib.call(hit.name, {"expression": "2450 * 17 / 100"}).result)
"""

from toolcrib_client.aio import AsyncTokenSource, AsyncToolcrib
from toolcrib_client.connection import TokenSource
from toolcrib_client.errors import (
    AmbiguousName,
    ConfirmationNeeded,
    DeadlineExceeded,
    InvalidArguments,
    InvalidRequest,
    LimitExceeded,
    NotPermitted,
    RegistryAnswerInvalid,
    RegistryUnavailable,
    TokenUnavailable,
    ToolcribError,
    ToolFailed,
    ToolNotFound,
    ToolUnavailable,
    Unauthorized,
    UpstreamFailed,
)
from toolcrib_client.results import (
    CallResult,
    Change,
    Hit,
    Loaded,
    LoadedTool,
    LoadFailure,
    Rediscovery,
    SearchAnswer,
    Tool,
)
from toolcrib_client.sync import Toolcrib
from toolcrib_client.version import __version__

__all__ = [
    "AmbiguousName",
    "AsyncTokenSource",
    "AsyncToolcrib",
    "CallResult",
    "Change",
    "ConfirmationNeeded",
    "DeadlineExceeded",
    "Hit",
    "InvalidArguments",
    "InvalidRequest",
    "LimitExceeded",
    "LoadFailure",
    "Loaded",
    "LoadedTool",
    "NotPermitted",
    "Rediscovery",
    "RegistryAnswerInvalid",
    "RegistryUnavailable",
    "SearchAnswer",
    "TokenSource",
    "TokenUnavailable",
    "Tool",
    "ToolFailed",
    "ToolNotFound",
    "ToolUnavailable",
    "Toolcrib",
    "ToolcribError",
    "Unauthorized",
    "UpstreamFailed",
    "__version__",
]
