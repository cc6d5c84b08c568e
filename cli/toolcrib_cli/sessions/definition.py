"""The file of a session: who works in which order, with which model, and what must be there first.

It is YAML: the session itself, or a ConfigMap that holds it under `session.yaml`, so that it can lie among manifests. No
file names tools: what an agent has is what the registry says.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel

from toolcrib.errors import Finding
from toolcrib.resources import durations, mistakes
from toolcrib_cli import yaml_documents
from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.manifests import SESSION
from toolcrib_runner.modes.kinds import Dialect, Mode

MOST_BYTES = 1024 * 1024
MOST_AGENTS = 50
_PAGE = "docs/reference/sessions.md shows every field"
_NAME = r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$"
_ACCOUNT = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"
_URL = r"^https?://[^\s@?#]+$"


def _duration(text: str) -> str:
    durations.seconds(text)
    return text


Duration = Annotated[str, AfterValidator(_duration)]


class Need(StrEnum):
    """What a part that is away means for a session."""

    REQUIRED = "required"
    """It does not begin."""
    DEGRADE = "degrade"
    """It begins without it, and says so."""


class Messages(StrEnum):
    """What becomes of what agents write."""

    KEEP = "keep"
    DISCARD = "discard"


class _Part(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True, hide_input_in_errors=True,
        protected_namespaces=(),
    )  # fmt: skip


class ModelChoice(_Part):
    """A model."""

    url: str | None = Field(
        default=None,
        pattern=_URL,
        description="An OpenAI-compatible endpoint, with its `/v1`. Absent: the scripted model, which is started with the "
        "session and is no language model.",
    )
    name: str = Field(
        default="toolcrib-scripted", min_length=1, max_length=256, description="The model's name there."
    )
    key_file: str | None = Field(
        default=None,
        description="File with its API key, in the folder of the session's file or below it. Absent: `OPENAI_API_KEY`, for "
        "`OPENAI_BASE_URL` and OpenAI's own address alone.",
    )

    @field_validator("key_file")
    @classmethod
    def _stays_in_the_folder(cls, path: str | None) -> str | None:
        # a file that somebody else wrote also names the address that its content is sent to
        if path is not None and (path.startswith(("/", "~")) or ".." in path.split("/")):
            raise ValueError(
                "must lie in the folder of the session's file: write a path that begins there, without .."
            )
        return path


class Bounds(_Part):
    """Where a turn ends at the latest."""

    replies: int = Field(default=20, ge=1, le=1000, description="Replies of the model in a turn, at most.")
    tokens: int = Field(default=200_000, ge=1, description="Prompt and completion tokens of a turn, at most.")
    seconds: float = Field(default=300.0, gt=0, le=86_400, description="Seconds of a turn, at most.")


class Agent(_Part):
    """One member of the team."""

    name: str = Field(pattern=_NAME, description="1 to 40 lower case letters, digits and `-`.")
    account: str = Field(
        pattern=_ACCOUNT, max_length=507, description="The service account that it acts as, `namespace/name`."
    )
    token_file: str | None = Field(
        default=None,
        description="File with its token, beside the session's file, read again when it changes. Absent: the local mode's issuer.",
    )
    role: str = Field(default="", max_length=1_000, description="Who it is.")
    prompt: str = Field(min_length=1, max_length=100_000, description="What it does in its turns.")
    mode: Mode = Field(
        default=Mode.AUTO, description="[What its model is shown](../guides/agents.md#modes) of its tools."
    )
    dialect: Dialect = Field(default=Dialect.NATIVE, description="How its model asks for calls.")
    model: ModelChoice | None = Field(default=None, description="A model of its own. Absent: the session's.")
    bounds: Bounds = Bounds()


class Needs(_Part):
    """Which parts must be there. Registry and issuer always must."""

    model: Need = Field(default=Need.REQUIRED, description="The models.")
    memory: Need | None = Field(
        default=None,
        description="[The memory tools](../guides/team-of-agents.md#memory), granted to every agent. They store "
        "answers, so `session.messages` must be `keep`. Absent: not used.",
    )
    backends: Need = Field(
        default=Need.DEGRADE,
        description="The backends of the agents' tools, as far as the registry knows them.",
    )


class Facts(_Part):
    """What is true of the session as a whole."""

    name: str = Field(
        pattern=_NAME,
        description="1 to 40 lower case letters, digits and `-`; begins the ids of its sessions.",
    )
    brief: str = Field(default="", max_length=100_000, description="What every agent is told first.")
    rounds: int = Field(default=1, ge=1, le=1000, description="How often each agent has a turn.")
    messages: Messages = Field(
        default=Messages.DISCARD,
        description="`keep` stores what agents write. `discard` stores outcomes, names of tools, counts and digests of "
        "arguments.",
    )
    retention: Duration = Field(
        default="720h",
        description="The session is deleted so long after it has ended or was paused; counts of uses stay.",
    )


class Definition(_Part):
    """A session's file."""

    session: Facts
    needs: Needs = Needs()
    model: ModelChoice = ModelChoice()
    agents: tuple[Agent, ...] = Field(min_length=1, max_length=MOST_AGENTS)

    @model_validator(mode="after")
    def _names_differ(self) -> Definition:
        names = [agent.name for agent in self.agents]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"two agents are called {twice}")
        return self

    @model_validator(mode="after")
    def _memory_is_asked_for(self) -> Definition:
        if self.needs.memory is not None and self.session.messages is not Messages.KEEP:
            raise ValueError("needs.memory stores what agents write: set session.messages to keep")
        return self

    @property
    def turns(self) -> int:
        """Of the whole session."""
        return self.session.rounds * len(self.agents)

    @property
    def retention_seconds(self) -> float:
        """How long the session is kept after its end."""
        return durations.seconds(self.session.retention)

    def agent_of(self, turn: int) -> Agent:
        """Whose turn it is, counted from 1."""
        return self.agents[(turn - 1) % len(self.agents)]

    def model_of(self, agent: Agent) -> ModelChoice:
        """The agent's own model, else the session's."""
        return agent.model or self.model

    def as_json(self) -> str:
        """For the store."""
        return self.model_dump_json(by_alias=True)


def read(file: Path) -> Definition:
    """The session of a file; files that it names are beside it.

    Raises:
        CliError: the file cannot be read, or is no session; the message has file, line and what is wrong, each problem in a line.
    """
    try:
        with file.open("rb") as opened:
            held = opened.read(MOST_BYTES + 1)
        if len(held) > MOST_BYTES:
            raise _refused(file, 0, f"larger than {MOST_BYTES // 1024} KiB")
        return parse(held.decode("utf-8"), file)
    except OSError as error:
        raise CliError(f"cannot read {file}: {error.strerror}", code=Exit.USAGE) from error
    except UnicodeDecodeError as error:
        raise _refused(file, 0, "not UTF-8") from error


def stored(text: str) -> Definition:
    """The session that `as_json` wrote.

    Raises:
        CliError: another release of Toolcrib wrote it.
    """
    try:
        return Definition.model_validate_json(text)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise CliError(
            f"another version of Toolcrib wrote this session: {where} is unknown here",
            hint="use the version that wrote it",
            code=Exit.USAGE,
        ) from error


def parse(text: str, file: Path = Path(SESSION)) -> Definition:
    """The session of a text; errors as `read`."""
    try:
        yaml_documents.check_bounds(text)
        nodes = [node for node in yaml_documents.nodes(text) if yaml_documents.value(node) is not None]
        if len(nodes) != 1:
            raise _refused(file, 0, f"one session is expected, not {len(nodes)} documents")
        node, lines = _session_in(nodes[0], file)
        body = yaml_documents.value(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _refused(file, mark.line + 1 if mark else 0, f"not valid YAML: {error.problem}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise _refused(file, 0, f"not valid YAML: {str(error).splitlines()[0]}") from error
    try:
        return Definition.model_validate(body)
    except ValidationError as error:
        raise _invalid(file, node, lines, error) from error


def _session_in(node: Any, file: Path) -> tuple[Any, int]:
    """The session's own node, and how many lines of the file stand before it."""
    body = yaml_documents.value(node)
    if not isinstance(body, dict) or body.get("kind") != "ConfigMap":
        return node, 0
    data = body.get("data")
    if not isinstance(data, dict) or not isinstance(data.get(SESSION), str):
        raise _refused(file, node.start_mark.line + 1, f"the ConfigMap has no data[{SESSION!r}]")
    within = yaml_documents.child(yaml_documents.child(node, "data"), SESSION)
    yaml_documents.check_bounds(data[SESSION])
    inner = list(yaml_documents.nodes(data[SESSION]))
    if len(inner) != 1:
        raise _refused(
            file, within.start_mark.line + 1, f"one session is expected, not {len(inner)} documents"
        )
    # a block's text begins in the line after its `|`
    return inner[0], within.start_mark.line + (1 if within.style in ("|", ">") else 0)


def _invalid(file: Path, node: Any, before: int, error: ValidationError) -> CliError:
    said = []
    for finding in mistakes.findings(error.errors(), Definition):
        if finding.field.rpartition(".")[2] == "tools":
            finding = Finding(
                finding.field,
                "a session names no tools: what an agent has is what bindings grant to its account",
                "grant them with an AgentScopeBinding",
            )
        said.append(f"{file}:{yaml_documents.line_of(node, finding.field) + before}: {finding}")
    return CliError("\n".join(said), hint=_PAGE, code=Exit.USAGE)


def _refused(file: Path, line: int, what: str) -> CliError:
    where = f"{file}:{line}" if line else str(file)
    return CliError(f"{where}: {what}", hint=_PAGE, code=Exit.USAGE)
