"""Toolcrib's agent runner: discover granted tools at run time, call them, run a task with a model, count it all.

from toolcrib_runner import DynamicToolAgent, TokenFile

with DynamicToolAgent("safecracker", TokenFile("/var/run/secrets/toolcrib/token"), "http://registry:8080") as agent:
    print(agent.generate_tool_prompt_context())
    print(agent.use_tool("calculator", expression="2 + 3"))
"""

from toolcrib_runner.adapters.client_credentials import ClientCredentials
from toolcrib_runner.adapters.registry_http import RegistryHttp
from toolcrib_runner.agent import DynamicToolAgent
from toolcrib_runner.discovery import DiscoveredTool, Parameter, Rediscovery
from toolcrib_runner.errors import (
    AmbiguousTool,
    InvalidArguments,
    LimitReached,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    NotPermitted,
    PolicyStale,
    RegistryAnswerInvalid,
    RegistryError,
    RegistryUnavailable,
    RunnerError,
    TokenUnavailable,
    ToolError,
    ToolFailed,
    ToolNotFound,
    ToolUnavailable,
    Unauthorized,
    UpstreamFailed,
    UpstreamTimeout,
)
from toolcrib_runner.follower import Pace
from toolcrib_runner.metrics import RunnerMetrics
from toolcrib_runner.tokens import StaticToken, TokenFile, TokenSource
from toolcrib_runner.usage import UsageStats

__all__ = [
    "AmbiguousTool",
    "ClientCredentials",
    "DiscoveredTool",
    "DynamicToolAgent",
    "InvalidArguments",
    "LimitReached",
    "ModelError",
    "ModelRefused",
    "ModelUnavailable",
    "NotPermitted",
    "Pace",
    "Parameter",
    "PolicyStale",
    "Rediscovery",
    "RegistryAnswerInvalid",
    "RegistryError",
    "RegistryHttp",
    "RegistryUnavailable",
    "RunnerError",
    "RunnerMetrics",
    "StaticToken",
    "TokenFile",
    "TokenSource",
    "TokenUnavailable",
    "ToolError",
    "ToolFailed",
    "ToolNotFound",
    "ToolUnavailable",
    "Unauthorized",
    "UpstreamFailed",
    "UpstreamTimeout",
    "UsageStats",
]
