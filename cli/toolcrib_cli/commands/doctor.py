"""`toolcrib doctor`: the checklist of docs/guides/hardening.md, with what was found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib_cli import options, output
from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.examples import Example, examples
from toolcrib_cli.output import Format

if TYPE_CHECKING:
    from toolcrib_cli.doctor.table import Item, Result

_STYLES = {"pass": "green", "fail": "bold red", "unknown": "yellow"}


@examples(
    Example("toolcrib doctor --local", lines=8),
    Example(
        "toolcrib doctor --context production",
        not_run="needs a cluster with the chart: `make cluster-test` runs it",
    ),
)
def doctor(
    ctx: typer.Context,
    local: Annotated[
        bool, typer.Option("--local", help="Check the local mode. --data and --url imply it.")
    ] = False,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    url: options.Url = None,
    data: options.Data = None,
    out: options.Output = Format.TABLE,
) -> None:
    """Check an installation against the hardening checklist. It only reads, and calls no tool.

    Exit code 1: an item fails. 2: none fails, and one could not be checked.
    """
    # the operator's parts and the Kubernetes client: only who asks waits for them
    from toolcrib_cli.doctor import table

    # variables that name a registry for other commands do not choose what is looked at
    given = (ctx.get_parameter_source(name) for name in ("url", "data"))
    if local or any(source is not None and source.name == "COMMANDLINE" for source in given):
        if context is not None:
            raise CliError(
                "--context selects a cluster, and --local, --url and --data the local mode",
                hint="remove one of them",
                code=Exit.USAGE,
            )
        from toolcrib_cli.doctor import local as here

        facts = here.look(options.data_folder(data), url.rstrip("/") if url else None)
    else:
        from toolcrib_cli.doctor import cluster

        facts = cluster.look(kubeconfig=kubeconfig, context=context)
    results = table.examine(facts)
    counted = Counter(str(r.verdict.outcome) for r in results)
    if out is Format.TABLE:
        _print(table.AREAS, results, counted)
    else:
        rows = [
            {"item": r.item.name, "outcome": str(r.verdict.outcome), "wanted": r.item.wanted,
             "found": r.verdict.found, "remedy": r.item.remedy}
            for r in results
        ]  # fmt: skip
        output.data({"place": str(facts.place), "items": rows, **{o: counted[o] for o in _STYLES}}, out)
    if counted["fail"]:
        raise typer.Exit(Exit.FAILED)
    if counted["unknown"]:
        raise typer.Exit(Exit.USAGE)


def _print(areas: Mapping[str, Sequence[Item]], results: Sequence[Result], counted: Counter[str]) -> None:
    by_name = {r.item.name: r for r in results}
    for area, found in areas.items():
        shown = [by_name[i.name] for i in found if i.name in by_name]
        if not shown:
            continue
        output.heading(area)
        for result in shown:
            outcome = str(result.verdict.outcome)
            output.line(f"{outcome:8}{result.item.name:20}{result.verdict.found}", style=_STYLES[outcome])
            if outcome != "pass":
                output.line(f"{'':8}{'':20}wanted: {result.item.wanted}")
                output.line(f"{'':8}{'':20}remedy: {result.item.remedy}")
    output.heading(f"{counted['pass']} pass, {counted['fail']} fail, {counted['unknown']} unknown")
