"""`toolcrib agent suspend` and `resume`: one switch for an agent, in the running local mode or in a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib_cli import options, output
from toolcrib_cli.commands import completion
from toolcrib_cli.commands.chosen import place
from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.examples import Example, examples

if TYPE_CHECKING:
    from toolcrib_cli.stopping.source import Source

_LONGEST = 1024
_CLUSTER = "needs a cluster: tests/cluster/test_agent_command.py runs the same"


def _agents(ctx: typer.Context, incomplete: str) -> list[str]:
    """For a shell: who is suspended, of `resume`; else the Agents and service accounts that there are."""
    given, resuming = ctx.params, ctx.info_name == "resume"

    def read() -> list[str]:
        from toolcrib_cli.stopping.source import KINDS, accounts, is_suspended

        kinds = KINDS[:1] if resuming else KINDS
        with _source(given.get("data"), given.get("kubeconfig"), given.get("context"), told=False) as source:
            bodies = source.objects(kinds, given.get("namespace"))
        return list(accounts([b for b in bodies if b["kind"] != "Agent" or is_suspended(b) is resuming]))

    found = completion.within(read)
    # without -n a name alone says nothing
    names = {each.partition("/")[2] if given.get("namespace") else each for each in found}
    return sorted(name for name in names if name.startswith(incomplete))


Agent = Annotated[
    str,
    typer.Argument(
        metavar="AGENT",
        help="namespace/name of the Agent, which is that of its ServiceAccount; with -n the name alone.",
        autocompletion=_agents,
    ),
]
Namespace = Annotated[
    str | None,
    typer.Option(
        "-n",
        "--namespace",
        help="The Agent's namespace.",
        show_default=False,
        autocompletion=completion.object_namespaces,
    ),
]
Wait = Annotated[
    float,
    typer.Option("--wait", min=0, help="Seconds to wait until every registry replica has confirmed it."),
]


@examples(
    'toolcrib agent suspend heist/hacker --reason "incident 7"',
    Example("toolcrib agent suspend bot -n team-a --context production", not_run=_CLUSTER),
)
def suspend(
    agent: Agent,
    namespace: Namespace = None,
    reason: Annotated[
        str | None, typer.Option("--reason", "-r", help="Why; others see it with the object.")
    ] = None,
    wait: Wait = 10.0,
    data: options.Data = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
) -> None:
    """Stop an agent on every replica: it sees and calls nothing, wherever it runs, and running calls are cut.

    Makes the Agent if there is none. To start the agent again takes the verb `resume`.
    """
    if reason is not None and not 0 < len(reason) <= _LONGEST:
        raise CliError(f"--reason has {len(reason):,} characters, not 1 to {_LONGEST:,}", code=Exit.USAGE)
    space, name = _named(agent, namespace)
    with _source(data, kubeconfig, context) as source:
        from toolcrib_cli.stopping.source import settled

        spec = {"suspended": True} | ({} if reason is None else {"reason": reason})
        settled(source, space, name, True, source.write(space, name, spec), wait)
    output.line(f"{space}/{name} is suspended on every replica.")


@examples(
    "toolcrib agent resume heist/hacker",
    Example("toolcrib agent resume bot -n team-a --context production", not_run=_CLUSTER),
)
def resume(
    agent: Agent,
    namespace: Namespace = None,
    wait: Wait = 10.0,
    data: options.Data = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
) -> None:
    """End a suspension: the agent has again what bindings grant it. In a cluster this takes the verb `resume`."""
    space, name = _named(agent, namespace)
    with _source(data, kubeconfig, context) as source:
        from toolcrib_cli.stopping.source import is_suspended, settled

        held = source.agent(space, name)
        if held is None or not is_suspended(held):
            raise CliError(
                f"{space}/{name} is not suspended",
                hint="`kubectl get agents.toolcrib.dev -A` lists Agents, in the local mode `toolcrib get agents`",
            )
        spec = {"suspended": False, "reason": None}
        settled(source, space, name, False, source.write(space, name, spec), wait)
    output.line(f"{space}/{name} is resumed on every replica.")


def _named(agent: str, namespace: str | None) -> tuple[str, str]:
    space, slash, name = agent.partition("/")
    if not slash:
        space, name = namespace or "", agent
    elif namespace not in (None, space):
        raise CliError(f"{agent} is not in the namespace {namespace}", hint="omit -n", code=Exit.USAGE)
    if not (space and name) or "/" in name:
        raise CliError(
            f"not an agent: {agent}", hint="specify namespace/name, or the name with -n", code=Exit.USAGE
        )
    return space, name


@contextmanager
def _source(
    data: Path | None, kubeconfig: str | None, context: str | None, *, told: bool = True
) -> Iterator[Source]:
    with place(data, kubeconfig, context, told=told) as found:
        if isinstance(found, Path):
            from toolcrib_cli.stopping.in_local_mode import LocalAgents

            yield LocalAgents(found)
            return
        from toolcrib_cli.stopping.in_cluster import ClusterAgents

        yield ClusterAgents(found)
