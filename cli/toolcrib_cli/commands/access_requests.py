"""`toolcrib access requests`, `approve` and `reject`: agents ask for a tool, people let them use it for a while."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib_cli import options, output
from toolcrib_cli.commands.chosen import Namespace, ask, place, space
from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.examples import Example, examples
from toolcrib_cli.output import Format

if TYPE_CHECKING:
    from toolcrib_cli.requesting.asked import Asked
    from toolcrib_cli.requesting.source import Source

Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="namespace/name of a request, or its name where only one has it."),
]
_NEEDS = "needs a request: tests/component/local/test_access_requests.py runs the same"


@examples("toolcrib access requests", "toolcrib access requests --all -o json")
def requests(
    namespace: Namespace = None,
    every: Annotated[bool, typer.Option("--all", help="Also those that are decided.")] = False,
    data: options.Data = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    out: options.Output = Format.TABLE,
) -> None:
    """List the tools that agents ask for. What an agent says is its own words: nobody checked them."""
    from toolcrib_cli.requesting.asked import all_asked

    with _source(data, kubeconfig, context) as source:
        asked = all_asked(source.objects(namespace))
    found = [each for each in asked if every or each.state == "open"]
    if out is not Format.TABLE:
        output.data([each.data for each in found], out)
        return
    output.table(
        ("request", "state", "tool", "scopes", "subject", "asked", "agent says"),
        [
            (
                each.key,
                "changed" if each.state == "open" and each.changed else each.state,
                each.request.tool_id,
                "" if each.tool is None else " ".join(each.tool.scopes),
                each.who,
                each.request.metadata.creation_timestamp or "",
                each.why,
            )
            for each in found
        ],
    )
    waiting = sum(each.state == "open" for each in asked)
    output.line(f"{waiting} of {len(asked)} request(s) are open.", stderr=True)


@examples(Example("toolcrib access approve database-query-1f2e3d4c --for 4h", not_run=_NEEDS))
def approve(
    name: Name,
    duration: Annotated[str, typer.Option("--for", help="How long, at most 24h: a number and s, m or h.")],
    namespace: Namespace = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Approve what is shown, without a question.")
    ] = False,
    data: options.Data = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    out: Annotated[
        Format,
        typer.Option("-o", "--output", help="yaml and json print the binding to create, and write nothing."),
    ] = Format.TABLE,
) -> None:
    """Let an agent use the one tool that it asks for, until the time is over.

    In a cluster this creates an AgentScopeBinding with your own rights: you need the verbs `grant` on the tool's scopes and
    `equip` on the subject. It is refused if the tool has changed since the agent asked, and to the subject itself.
    """
    from toolcrib_cli.requesting.asked import all_asked, approval, published

    seconds = _seconds(duration)
    with _source(data, kubeconfig, context) as source:
        bodies = source.objects(space(name, namespace))
        asked = _one(all_asked(bodies), name)
        tools = [tool for tool in published(bodies) if tool.namespace == asked.request.metadata.namespace]
        username = source.username()
        if username is not None and asked.is_asked_by(username):
            raise CliError(
                f"you may not approve a request of your own: {username} asks for it",
                hint="ask somebody else to approve it",
                code=Exit.NOT_PERMITTED,
            )
        made = approval(asked, tools, time.time() + seconds)
        if out is not Format.TABLE:
            output.data(made, out)
            return
        _print(asked)
        if not yes:
            ask(
                f"Let {asked.who} use {asked.request.tool_id} for {duration}?",
                otherwise="to reject it: toolcrib access reject NAME --reason TEXT",
            )
            made = approval(asked, tools, time.time() + seconds)
        source.grant(made)
        _recheck(source, asked, made)
    output.line(f"{asked.key} approved until {made['spec']['expiresAt']}")


@examples(Example('toolcrib access reject database-query-1f2e3d4c --reason "use the report"', not_run=_NEEDS))
def reject(
    name: Name,
    reason: Annotated[str, typer.Option("--reason", "-r", help="Why; people see it in the request.")],
    namespace: Namespace = None,
    data: options.Data = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
) -> None:
    """Say why an agent does not get what it asks for. In a cluster this annotates the AccessRequest."""
    from toolcrib.resources.access_requests import MOST_REASON
    from toolcrib_cli.requesting.asked import all_asked, check_open

    if not 0 < len(reason) <= MOST_REASON:
        raise CliError(
            f"--reason has {len(reason):,} characters, not 1 to {MOST_REASON}",
            hint="shorten it" if reason else "specify why: --reason TEXT",
            code=Exit.USAGE,
        )
    with _source(data, kubeconfig, context) as source:
        asked = _one(all_asked(source.objects(space(name, namespace))), name)
        check_open(asked)
        source.reject(asked, reason)
    output.line(f"{asked.key} rejected")


def _recheck(source: Source, asked: Asked, made: dict[str, object]) -> None:
    """Take the binding back if request or tool became another while it was written, or it is not known whether they did."""
    from toolcrib_cli.requesting.asked import all_asked

    try:
        now = all_asked(source.objects(asked.request.metadata.namespace))
    except CliError:
        source.revoke(made)
        raise
    again = next((each for each in now if each.key == asked.key), None)
    if (
        again is not None
        and again.request.metadata.uid == asked.request.metadata.uid
        and again.request.rejection is None
        and not again.changed
    ):
        return
    source.revoke(made)
    raise CliError(
        f"{asked.key} is not approved: the request or its tool changed meanwhile",
        hint="look at it again: toolcrib access requests --all",
    )


@contextmanager
def _source(data: Path | None, kubeconfig: str | None, context: str | None) -> Iterator[Source]:
    with place(data, kubeconfig, context) as found:
        if isinstance(found, Path):
            from toolcrib_cli.requesting.in_local_mode import LocalRequests

            yield LocalRequests(found)
            return
        from toolcrib_cli.requesting.in_cluster import ClusterRequests

        yield ClusterRequests(found)


def _seconds(duration: str) -> float:
    from toolcrib.resources import durations
    from toolcrib.resources.access_requests import LONGEST_SECONDS

    try:
        found = durations.seconds(duration)
    except ValueError as error:
        raise CliError(f"--for: {error}", code=Exit.USAGE) from error
    if not 1 <= found <= LONGEST_SECONDS:
        raise CliError(
            f"--for {duration} is not between 1s and 24h",
            hint="write a binding for a longer time",
            code=Exit.USAGE,
        )
    return found


def _one(found: list[Asked], name: str) -> Asked:
    matching = [each for each in found if name in (each.key, each.key.partition("/")[2])]
    if not matching:
        raise CliError(f"there is no request {name}", hint="`toolcrib access requests --all` lists them")
    if len(matching) > 1:
        keys = ", ".join(each.key for each in matching)
        raise CliError(f"several requests are named {name}", hint=f"use one of {keys}", code=Exit.USAGE)
    return matching[0]


def _print(asked: Asked) -> None:
    assert asked.tool is not None
    output.line(f"{asked.who} asks for {asked.request.tool_id}", style="bold")
    output.line(f"  scopes: {' '.join(asked.tool.scopes)}")
    output.line(f"  the agent says: {asked.why}")
