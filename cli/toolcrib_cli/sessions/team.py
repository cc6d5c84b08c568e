"""The parts that a session works with: its agents' tokens, their connections to the registry, and their models."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.sessions.definition import Agent, Definition, ModelChoice
from toolcrib_runner import scripted
from toolcrib_runner.adapters.openai_model import OpenAIModel
from toolcrib_runner.adapters.registry_http import RegistryHttp
from toolcrib_runner.agent import DynamicToolAgent
from toolcrib_runner.errors import TokenUnavailable
from toolcrib_runner.tokens import TokenFile, TokenSource

_OPENAI = "https://api.openai.com/v1"


@dataclass
class Team:
    """How each agent reaches the registry and its model."""

    definition: Definition
    url: str
    tokens: dict[str, TokenSource]
    models: dict[ModelChoice, OpenAIModel] = field(default_factory=dict)
    ca_file: str | None = None

    def registry(self, agent: Agent, timeout: float) -> RegistryHttp:
        """A connection as the agent; the caller closes it."""
        return RegistryHttp(
            self.url, self.tokens[agent.name], ca_file=self.ca_file, timeout=timeout, call_timeout=timeout
        )

    def agent(self, agent: Agent, session: str, turn: int) -> DynamicToolAgent:
        """The agent for one turn, with a discovery of its own; the caller closes it."""
        return DynamicToolAgent(
            agent.name, self.tokens[agent.name], self.url, ca_file=self.ca_file, session=f"{session}/{turn}"
        )

    def model(self, agent: Agent) -> OpenAIModel:
        """The agent's model."""
        return self.models[self.definition.model_of(agent)]


@contextmanager
def composed(
    definition: Definition,
    url: str,
    *,
    folder: Path,
    mint: Callable[[str], TokenSource],
    ca_file: Path | None = None,
    environ: Callable[[str], str | None] = os.environ.get,
) -> Iterator[Team]:
    """The team of a session. Files that it names are looked for in `folder`; `mint` gives tokens of accounts without a file.

    Raises:
        CliError: an address or a file cannot be used.
    """
    with ExitStack() as stack:
        tokens = {
            agent.name: mint(agent.account)
            if agent.token_file is None
            else TokenFile(folder / agent.token_file)
            for agent in definition.agents
        }
        team = Team(definition, url, tokens, ca_file=None if ca_file is None else str(ca_file))
        for choice in {definition.model_of(agent): None for agent in definition.agents}:
            address = stack.enter_context(scripted.serving()) if choice.url is None else choice.url
            try:
                made = OpenAIModel(address, choice.name, _key(choice, folder, environ))
            except (ValueError, TokenUnavailable) as error:
                raise CliError(f"model {choice.name}: {error}", code=Exit.USAGE) from error
            stack.callback(made.close)
            team.models[choice] = made
        yield team


def _key(choice: ModelChoice, folder: Path, environ: Callable[[str], str | None]) -> Callable[[], str]:
    if choice.key_file is not None:
        file = TokenFile(folder / choice.key_file)
        file()
        return file
    # the client insists on a key; endpoints without authentication take any
    held = environ("OPENAI_API_KEY") if _is_openais(choice.url, environ("OPENAI_BASE_URL")) else None
    return lambda: held or "none"


def _is_openais(url: str | None, base: str | None) -> bool:
    """Whether the key of the environment is for this address: a session's file may come from anybody."""
    return url is not None and urlsplit(url)[:2] in (urlsplit(base or _OPENAI)[:2], urlsplit(_OPENAI)[:2])
