"""`toolcrib approvals`: tools with `approval: Manual` and their candidates that wait for somebody, and what is decided."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib_cli import options, output
from toolcrib_cli.commands import completion
from toolcrib_cli.commands.chosen import Namespace, ask, place, space
from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.examples import Example, epilog, examples
from toolcrib_cli.output import Format

if TYPE_CHECKING:
    from toolcrib_cli.approving.shown import Shown
    from toolcrib_cli.approving.source import Source

app = typer.Typer(
    help="Review tools that need approval: in the running local mode, else in a cluster.",
    no_args_is_help=True,
)


def _tools(ctx: typer.Context, incomplete: str) -> list[str]:
    """Tools with approval Manual, for a shell; of `approve` those that wait."""
    given = ctx.params
    waiting, named = ctx.info_name == "approve", set(given.get("tools") or ())

    def read() -> list[tuple[str, str]]:
        place = (given.get("data"), given.get("kubeconfig"), given.get("context"))
        with _source(*place, told=False) as source:
            found = source.tools(given.get("namespace"))
        return [(each.key, each.key.partition("/")[2]) for each in found if each.quarantined or not waiting]

    found = options.matching(dict(completion.within(read)), incomplete)
    return [each for each in found if each not in named]


Tool = Annotated[
    str,
    typer.Argument(
        help="namespace/name of a Tool or ToolCanary, or its name where only one has it.",
        autocompletion=_tools,
    ),
]
Manager = Annotated[
    str, typer.Option("--field-manager", help="Who writes it, for server-side apply in a cluster.")
]
_MANAGER = "toolcrib-approvals"
_LONGEST_REASON = 512
_NEEDS = "needs a tool that waits: tests/component/local/test_approvals.py runs the same"


@examples("toolcrib approvals list", "toolcrib approvals list --all -o json")
def list_(
    namespace: Namespace = None,
    all_tools: Annotated[bool, typer.Option("--all", help="Also tools that are approved.")] = False,
    data: options.Data = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    out: options.Output = Format.TABLE,
) -> None:
    """List the tools and candidates of ToolCanaries that are quarantined, and why."""
    with _source(data, kubeconfig, context) as source:
        every = source.tools(namespace)
    found = [each for each in every if all_tools or each.quarantined]
    if out is not Format.TABLE:
        output.data([each.data for each in found], out)
        return
    output.table(
        ("tool", "reason", "since", "digest", "detail"),
        [(each.key, each.reason, each.since, each.digest, each.message) for each in found],
    )
    waiting = sum(each.quarantined for each in every)
    output.line(f"{waiting} of {len(every)} tool(s) with approval Manual are quarantined.", stderr=True)


@examples(Example("toolcrib approvals diff heist/read-file", not_run=_NEEDS))
def diff(
    tool: Tool,
    namespace: Namespace = None,
    data: options.Data = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    out: options.Output = Format.TABLE,
) -> None:
    """Show how a tool differs from what was approved last; a tool that nobody approved is shown whole.

    A candidate of a ToolCanary is compared with the tool's own definition.

    `-` is what was approved, `+` what the tool is now. Values are JSON in ASCII, so that nothing hides.
    """
    with _source(data, kubeconfig, context) as source:
        found = _one(source.tools(space(tool, namespace)), tool)
    if out is not Format.TABLE:
        from toolcrib import approvals

        more = {"approved": found.before, "present": approvals.parts(found.tool), "changes": found.changes}
        output.data(found.data | more, out)
        return
    _print(found)
    if found.quarantined and found.assessed:
        command = f"toolcrib approvals approve {found.key} --digest {found.digest}"
        output.line(f"To approve exactly this: {command}", stderr=True)


@examples(
    Example("toolcrib approvals approve heist/read-file", not_run=_NEEDS),
    Example(
        "toolcrib approvals approve heist/read-file --context production -o yaml |\n"
        "  kubectl apply --server-side --field-manager toolcrib-approvals -f -",
        not_run="needs a cluster: tests/cluster runs the same",
    ),
)
def approve(
    tools: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TOOL]...",
            help="namespace/name of Tools, or their names where only one has it.",
            autocompletion=_tools,
        ),
    ] = None,
    namespace: Namespace = None,
    all_tools: Annotated[
        bool, typer.Option("--all", help="All quarantined tools of the namespace that -n names.")
    ] = False,
    digest: Annotated[
        str | None,
        typer.Option("--digest", help="Approve only this digest, as `diff` shows it, without a question."),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Approve what is shown, without a question.")
    ] = False,
    field_manager: Manager = _MANAGER,
    force_conflicts: Annotated[
        bool, typer.Option("--force-conflicts", help="Take over a digest that another field manager holds.")
    ] = False,
    data: options.Data = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    out: Annotated[
        Format,
        typer.Option("-o", "--output", help="yaml and json print the manifests to apply, and write nothing."),
    ] = Format.TABLE,
) -> None:
    """Show what changed, and approve it.

    In a cluster this is server-side apply of `spec.approvedDigest` alone, and needs the verb `approve` on the Tool.
    """
    names = tools or []
    if bool(names) == all_tools or (all_tools and namespace is None):
        raise CliError("Specify tools, or --all with -n NAMESPACE.", code=Exit.USAGE)
    if digest is not None and len(names) != 1:
        raise CliError("--digest takes exactly one tool.", code=Exit.USAGE)
    with _source(data, kubeconfig, context, field_manager, force_conflicts) as source:
        found, left = _approvable(_chosen(source, names, namespace), digest, skipping=all_tools)
        if out is not Format.TABLE:
            _manifests(found, out, field_manager)
            return
        for each in found:
            _print(each)
        if not found and not left:
            output.line("Nothing waits for approval.", stderr=True)
            return
        if found and digest is None and not yes:
            ask(
                f"Approve {_named(found)} as shown?",
                otherwise="run it again and answer y, or reject it: toolcrib approvals reject TOOL",
                without="specify --yes, or --digest with the digest that you reviewed",
            )
            now = {each.key: each.digest for each in _chosen(source, [each.key for each in found], None)}
            for each in found:
                if now[each.key] != each.digest:
                    raise _changed(each.key)
        for each in found:
            try:
                source.approve(each)
            except CliError as error:
                if not all_tools or error.code == Exit.UNREACHABLE:
                    raise
                left.append(error)
            else:
                output.line(f"{each.key} approved: {each.digest}")
        if left:
            said = "\n".join(f"  {e.message}{f' ({e.hint})' if e.hint else ''}" for e in left)
            raise CliError(
                f"not approved, {len(left)} of those that wait:\n{said}",
                hint="`toolcrib approvals list` shows what waits",
            )


@examples(
    Example('toolcrib approvals reject heist/read-file --reason "asks for private keys"', not_run=_NEEDS)
)
def reject(
    tool: Tool,
    reason: Annotated[str, typer.Option("--reason", "-r", help="Why; others see it in `list`.")],
    namespace: Namespace = None,
    digest: Annotated[
        str | None, typer.Option("--digest", help="Reject only this digest, as `diff` shows it.")
    ] = None,
    field_manager: Manager = _MANAGER,
    data: options.Data = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
) -> None:
    """Say why a tool is not approved as it is. It stays quarantined; if it is approved so, the approval is withdrawn.

    What was approved before stays approved: restore it, and the tool is used again.
    """
    if not 0 < len(reason) <= _LONGEST_REASON:
        raise CliError(
            f"--reason has {len(reason):,} characters, not 1 to {_LONGEST_REASON}",
            hint="shorten it" if reason else "specify why: --reason TEXT",
            code=Exit.USAGE,
        )
    with _source(data, kubeconfig, context, field_manager) as source:
        found = _one(source.tools(space(tool, namespace)), tool)
        _same(found, digest)
        source.reject(found, reason)
    output.line(f"{found.key} rejected: {found.digest}")


for _name, _command in (("list", list_), ("diff", diff), ("approve", approve), ("reject", reject)):
    app.command(_name, epilog=epilog(_command))(_command)


@contextmanager
def _source(
    data: Path | None,
    kubeconfig: str | None,
    context: str | None,
    field_manager: str = _MANAGER,
    force: bool = False,
    *,
    told: bool = True,
) -> Iterator[Source]:
    with place(data, kubeconfig, context, told=told) as found:
        if isinstance(found, Path):
            from toolcrib_cli.approving.in_local_mode import LocalTools

            yield LocalTools(found)
            return
        from toolcrib_cli.approving.in_cluster import ClusterTools

        yield ClusterTools(found, field_manager=field_manager, force=force)


def _one(found: list[Shown], tool: str) -> Shown:
    matching = [each for each in found if tool in (each.key, each.key.partition("/")[2])]
    # a Tool comes before a ToolCanary of its name, which is NAME~candidate
    matching = matching or [each for each in found if tool in (each.object, each.object.partition("/")[2])]
    if not matching:
        raise CliError(
            f"there is no Tool {tool} with approval Manual, and no candidate of one",
            hint="`toolcrib approvals list --all` lists them",
        )
    if len(matching) > 1:
        keys = ", ".join(each.key for each in matching)
        raise CliError(f"several Tools are named {tool}", hint=f"use one of {keys}", code=Exit.USAGE)
    return matching[0]


def _chosen(source: Source, names: list[str], namespace: str | None) -> list[Shown]:
    """The tools of these names, or all that wait. No namespace is read that is not asked for: rights may be of one."""
    if not names:
        return [each for each in source.tools(namespace) if each.quarantined]
    spaces = {name: space(name, namespace) for name in names}
    found = {home: source.tools(home) for home in dict.fromkeys(spaces.values())}
    chosen = (_one(found[home], name) for name, home in spaces.items())
    return list({each.key: each for each in chosen}.values())


def _approvable(
    found: list[Shown], digest: str | None, *, skipping: bool
) -> tuple[list[Shown], list[CliError]]:
    """What can be approved now, and why the others cannot; the first of those is raised unless they are skipped."""
    ready: list[Shown] = []
    left: list[CliError] = []
    for each in found:
        try:
            _ready(each, digest)
        except CliError as error:
            if not skipping:
                raise
            left.append(error)
        else:
            ready.append(each)
    return ready, left


def _ready(tool: Shown, digest: str | None) -> None:
    """Whether it can be approved now."""
    _same(tool, digest)
    if not tool.assessed:
        raise CliError(f"{tool.key} cannot be approved yet: {tool.message}", hint="look at it, and try again")


def _same(tool: Shown, digest: str | None) -> None:
    if digest is not None and digest != tool.digest:
        raise _changed(tool.key)


def _changed(key: str) -> CliError:
    return CliError(
        f"{key} has changed since it was shown", hint=f"look at it again: toolcrib approvals diff {key}"
    )


def _print(tool: Shown) -> None:
    of = "" if tool.stable is None else f", a candidate of {tool.stable.tool_id}"
    output.line(f"{tool.key}: {tool.reason}{of}", style="bold")
    if tool.before is None:
        output.line("  No approved definition is kept: this is the whole tool")
    for text in tool.changes:
        output.line(f"  {text}", style="red" if text.startswith("-") else "green")
    if not tool.changes:
        output.line("  Nothing differs from what was approved last")
    if (why := tool.rejection) is not None:
        output.line(f"  rejected before: {why}", style="yellow")
    for warning in tool.warnings:
        output.line(f"  ! {warning.reason}: {warning}", style="yellow")
    output.line(f"  digest: {tool.digest}")


def _manifests(found: list[Shown], out: Format, field_manager: str) -> None:
    made = [each.approval for each in found]
    output.data(made[0] if len(made) == 1 else {"apiVersion": "v1", "kind": "List", "items": made}, out)
    command = f"kubectl apply --server-side --field-manager {field_manager} -f FILE"
    output.line(f"Nothing is written. To approve: {command}", stderr=True)


def _named(found: list[Shown]) -> str:
    return found[0].key if len(found) == 1 else f"these {len(found)} tools"
