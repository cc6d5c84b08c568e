"""How the runner's process is set up: flags, else environment variables, else defaults; every problem at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from toolcrib.settings import Source

VARIABLES = {"name": "TOOLCRIB_AGENT", "registry_url": "TOOLCRIB_URL"}
"""Fields whose variables have names that the command line uses too."""
_URL = r"^https?://[^\s@?#]+$"
_NAME = r"^[A-Za-z0-9._/-]{1,253}$"
_FORMS = {
    _URL: "an http:// or https:// address without user, query or fragment",
    _NAME: "1 to 253 letters, digits, '.', '_', '/' or '-'",
}
"""What a text must be, by the pattern that says so."""


class RunnerSettings(BaseModel):
    """One run of one agent."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, protected_namespaces=())

    name: str = Field(pattern=_NAME, description="Name of the agent in statistics and metrics.")
    registry_url: str = Field(
        pattern=_URL, description="The registry's address, http(s)://host[:port][/path]."
    )
    token_file: str | None = Field(
        default=None,
        description="File with the agent's bearer token; read again when it changes. Absent: the agent is "
        "anonymous.",
    )
    ca_file: str | None = Field(default=None, description="CA bundle to verify the registry with.")
    model_url: str | None = Field(
        default=None, pattern=_URL, description="OpenAI-compatible endpoint, with its /v1. Needed for a task."
    )
    model: str = Field(default="toolcrib-scripted", min_length=1, description="Name of the model.")
    model_key_file: str | None = Field(
        default=None,
        description="File with the API key of the model endpoint; else OPENAI_API_KEY; else none.",
    )
    task: str | None = Field(
        default=None, max_length=1_000_000, description="The task; - reads standard input."
    )
    system_prompt: str = Field(default="", max_length=1_000_000, description="System message for the model.")
    max_turns: int = Field(default=20, ge=1, le=1000, description="Requests to the model, at most.")
    max_tokens: int = Field(
        default=200_000, ge=1, description="Prompt and completion tokens together, at most."
    )
    max_seconds: float = Field(default=600.0, gt=0, le=86_400, description="Seconds for the task, at most.")
    model_patience: float = Field(
        default=60.0, ge=0, description="Seconds for which a failing model endpoint is retried."
    )
    wait_for_registry: float = Field(
        default=30.0,
        ge=0,
        description="Seconds to wait for the first discovery before the task begins without tools.",
    )
    require_registry: bool = Field(
        default=False, description="If discovery fails in that time, exit with code 5 instead."
    )
    mode: Literal["static", "dynamic", "cached", "batched", "hybrid", "auto"] = Field(
        default="auto",
        description="What the model is shown: static (all tools), dynamic (searches), batched (several searches at "
        "once), cached (as batched; remembers the tools of tasks of the same words for an hour), hybrid (some tools, "
        "searches for others), auto (static up to 4,000 tokens of schemas, else batched).",
    )
    dialect: Literal["native", "text", "lenient"] = Field(
        default="native",
        description="How the model calls: native (functions), text (last lines such as CALL: name {…}), lenient (functions, "
        "lines, or JSON in the text, as small models write).",
    )
    core_tools: str | None = Field(
        default=None,
        max_length=10_000,
        description="hybrid: names or ids of the tools that are shown at once, with commas between them. Absent: the "
        "five most used.",
    )
    max_context: int = Field(
        default=128_000,
        ge=1_000,
        description="Tokens of one request, at most (estimated). The oldest results are cut first.",
    )
    tool_context: bool = Field(
        default=False,
        description="Also list the tools in a system message, one line each. Models get them as functions in "
        "any case, so this costs their tokens twice.",
    )
    state: Path | None = Field(
        default=None,
        description="Folder that keeps the counts of calls by tool over restarts. Absent: they are lost.",
    )
    metrics_host: str = Field(default="127.0.0.1", description="Address of /metrics, /healthz and /readyz.")
    metrics_port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description="Port of /metrics, /healthz and /readyz; 0 takes a free one. Absent: off.",
    )
    keep_serving: bool = Field(
        default=False,
        description="Keep running after the task (or without one) and follow the registry until SIGTERM.",
    )
    output: Literal["plain", "json"] = Field(
        default="plain", description="Form of the result: plain or json."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Log level on standard error: debug, info, warning or error."
    )
    log_format: Literal["json", "text"] | None = Field(
        default=None, description="Log format: json or text. Absent: text if standard error is a terminal."
    )

    @field_validator("log_level", "log_format", mode="before")
    @classmethod
    def _any_case(cls, value: Any) -> Any:
        # the other services read the same two variables in any case
        return value.lower() if isinstance(value, str) else value

    @model_validator(mode="after")
    def _has_something_to_do(self) -> RunnerSettings:
        if self.task is None and not self.keep_serving:
            raise ValueError(
                "task is missing: pass --task, or --keep-serving to follow the registry without a task"
            )
        if self.task is not None and self.model_url is None:
            raise ValueError("model_url is missing: a task needs a model. Pass --model-url")
        return self


SOURCE = Source(RunnerSettings, "TOOLCRIB_", variables=VARIABLES, forms=_FORMS)
"""Flags before variables: `TOOLCRIB_` and the field, but for `VARIABLES`."""
