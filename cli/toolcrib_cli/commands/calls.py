"""`toolcrib calls`: single calls of agents that wait for a person, and what is decided about them."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib_cli import options, output
from toolcrib_cli.commands import completion
from toolcrib_cli.commands.chosen import ask, place
from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.examples import Example, epilog, examples
from toolcrib_cli.output import Format

if TYPE_CHECKING:
    from toolcrib.wire.confirmations import CallDecision, ConfirmableCall
    from toolcrib_cli.confirming.source import Source

app = typer.Typer(
    help="Confirm single calls of agents: in the running local mode, else in a cluster.",
    no_args_is_help=True,
)
_NEEDS = "needs a call that waits: tests/component/local/test_calls.py runs the same"
_LONGEST = 120


def _calls(ctx: typer.Context, incomplete: str) -> list[str]:
    """Calls that wait, for a shell."""
    given = ctx.params

    def read() -> list[str]:
        where = (given.get("data"), given.get("kubeconfig"), given.get("context"))
        with _source(*where, told=False) as source:
            return [call.key for call in source.waiting(given.get("namespace"))]

    return [key for key in completion.within(read) if key.startswith(incomplete)]


Namespace = Annotated[
    str | None,
    typer.Option(
        "-n",
        "--namespace",
        help="Only calls of this namespace's tools.",
        show_default="all",
        autocompletion=completion.object_namespaces,
    ),
]
Call = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="namespace/id of a call, as the agent was told it.", autocompletion=_calls
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
WithHidden = Annotated[
    bool,
    typer.Option(
        "--with-hidden-arguments", help="Confirm the call although parts of its arguments are not shown."
    ),
]


@examples("toolcrib calls pending", "toolcrib calls pending -n heist -o json")
def pending(
    namespace: Namespace = None,
    data: options.Data = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    out: options.Output = Format.TABLE,
) -> None:
    """List the calls that wait for a person: tool, agent, age and arguments.

    Arguments are JSON in ASCII. Credentials, and values that the tool's schema marks as secret, are
    `***(N characters hidden)`.
    """
    with _source(data, kubeconfig, context) as source:
        found = source.waiting(namespace)
    if out is not Format.TABLE:
        output.data([_data(call) for call in found], out)
        return
    output.table(
        ("id", "tool", "agent", "age", "arguments"),
        [(c.key, c.tool_id, c.agent, f"{_age(c)} s", _beginning(c.arguments)) for c in found],
    )


@examples(
    Example("toolcrib calls confirm heist/3f0a9c21b7de", not_run=_NEEDS),
    Example("toolcrib calls confirm heist/3f0a9c21b7de --context production", not_run="needs a cluster"),
)
def confirm(
    call: Call,
    yes: Yes = False,
    with_hidden_arguments: WithHidden = False,
    data: options.Data = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
) -> None:
    """Show one call, and let the agent make it once. The agent has to send the same call again.

    In a cluster this takes the verb `confirm` on the Tool. No caller confirms its own call.
    """
    from toolcrib.wire.confirmations import CallDecision

    _decide(call, CallDecision.CONFIRMED, yes, with_hidden_arguments, data, kubeconfig, context)


@examples(Example("toolcrib calls reject heist/3f0a9c21b7de", not_run=_NEEDS))
def reject(
    call: Call,
    yes: Yes = False,
    data: options.Data = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
) -> None:
    """Show one call, and refuse it: the agent is told so, until the call expires."""
    from toolcrib.wire.confirmations import CallDecision

    _decide(call, CallDecision.REJECTED, yes, True, data, kubeconfig, context)


for _name, _command in (("pending", pending), ("confirm", confirm), ("reject", reject)):
    app.command(_name, epilog=epilog(_command))(_command)


def _decide(
    key: str,
    decision: CallDecision,
    yes: bool,
    with_hidden: bool,
    data: Path | None,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    space, slash, name = key.rpartition("/")
    if not (space and slash and name) or "/" in space:
        raise CliError(
            f"not a call: {key}",
            hint="specify namespace/id; `toolcrib calls pending` lists them",
            code=Exit.USAGE,
        )
    word = decision.value.lower()
    with _source(data, kubeconfig, context) as source:
        found = next((each for each in source.waiting(space) if each.key == key), None)
        if found is None:
            raise CliError(
                f"no call {key} waits for confirmation",
                hint="it may have expired after 5 minutes, or be decided; `toolcrib calls pending` lists what waits",
            )
        output.line(f"{found.agent} calls {found.tool_id}, {_age(found)} s ago:", style="bold")
        output.line(f"  {found.arguments}")
        if found.hidden and not with_hidden:
            raise CliError(
                f"the arguments have {_hidden(found)}",
                hint="ask the agent's owner for them; to confirm the call all the same, add --with-hidden-arguments",
                code=Exit.USAGE,
            )
        if not yes:
            question = "Confirm this call" if word == "confirmed" else "Reject this call"
            ask(
                f"{question}, with {_hidden(found)}?" if found.hidden else f"{question}?",
                refused="nothing is decided",
                otherwise="run it again and answer y",
            )
        source.decide(found, decision)
    output.line(f"{found.key} {word}.")


def _age(call: ConfirmableCall) -> int:
    return max(0, int(time.time()) - call.asked_at)


def _hidden(call: ConfirmableCall) -> str:
    return f"{call.hidden:,} hidden character{'' if call.hidden == 1 else 's'}"


def _beginning(arguments: str) -> str:
    """As much as a table has room for, and how much there is besides; all of it in a pipe."""
    more = len(arguments) - _LONGEST
    return (
        f"{arguments[:_LONGEST]}… ({more:,} more characters)"
        if more > 0 and sys.stdout.isatty()
        else arguments
    )


def _data(call: ConfirmableCall) -> dict[str, object]:
    from toolcrib.resources.conditions import timestamp

    return {
        "id": call.key,
        "tool": call.tool_id,
        "agent": call.agent,
        "arguments": call.arguments,
        "hiddenCharacters": call.hidden,
        "askedAt": timestamp(call.asked_at),
        "expiresAt": timestamp(call.expires_at),
    }


@contextmanager
def _source(
    data: Path | None, kubeconfig: str | None, context: str | None, *, told: bool = True
) -> Iterator[Source]:
    with place(data, kubeconfig, context, told=told) as found:
        if isinstance(found, Path):
            from toolcrib_cli.confirming.in_local_mode import LocalCalls

            yield LocalCalls(found)
            return
        from toolcrib_cli.confirming.in_cluster import ClusterCalls

        yield ClusterCalls(found)
