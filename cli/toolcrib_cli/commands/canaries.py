"""`toolcrib canary report`: the numbers of a trial, or of two agents by a decision log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolcrib_cli import options, output
from toolcrib_cli.commands import audit
from toolcrib_cli.commands.chosen import place
from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.examples import Example, epilog, examples
from toolcrib_cli.output import Format

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolcrib.canary.statistics import Interval

app = typer.Typer(help="Try another definition of a tool with a share of its callers.", no_args_is_help=True)

_KIND = "ToolCanary"
_COUNTS = ("selected", "called", "failed", "corrected")
_NOT_RUN = "needs agents at work: tests/component/local/test_canaries.py runs the same"


@examples(
    Example("toolcrib canary report team-a/lookup-words", not_run=_NOT_RUN),
    Example("toolcrib canary report --agent lab/with-words --agent lab/with-examples", not_run=_NOT_RUN),
)
def report(
    canary: Annotated[
        str | None,
        typer.Argument(
            metavar="[CANARY]",
            help="namespace/name of the ToolCanary; with -n the name alone. Default: all.",
            show_default=False,
        ),
    ] = None,
    namespace: Annotated[
        str | None, typer.Option("-n", "--namespace", help="Only this namespace.", show_default=False)
    ] = None,
    agent: Annotated[
        list[str] | None,
        typer.Option("--agent", help="Compare two agents by a decision log instead. Specify it twice."),
    ] = None,
    log: Annotated[
        list[str] | None,
        typer.Option(
            "--log",
            help="Decision logs for --agent: files or folders. Repeatable. Default: the local mode's log.",
        ),
    ] = None,
    data: options.Data = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    out: Annotated[Format, typer.Option("--output", "-o", help="How to print it.")] = Format.TABLE,
) -> None:
    """What callers do with a candidate and with the tool's own definition: calls, failures and the difference.

    With --agent: what two agents do, each with the tools of its own bindings.
    """
    if agent is not None:
        if canary is not None or len(agent) != 2:
            raise CliError(
                "two agents are compared",
                hint="specify --agent twice, and no CANARY",
                code=Exit.USAGE,
            )
        rows = [_of_agents(agent[0], agent[1], audit.places(log, data))]
    else:
        rows = [_of_canary(body) for body in _canaries(canary, namespace, data, kubeconfig, context)]
    if out is not Format.TABLE:
        output.data(rows, out)
        return
    for row in rows:
        _tell(row)


app.command("report", epilog=epilog(report))(report)


def _canaries(
    canary: str | None, namespace: str | None, data: Path | None, kubeconfig: str | None, context: str | None
) -> Sequence[Mapping[str, Any]]:
    space, slash, name = (canary or "").rpartition("/")
    if slash and namespace not in (None, space):
        raise CliError(f"{canary} is not in the namespace {namespace}", hint="omit -n", code=Exit.USAGE)
    space = space or namespace or ""
    if name and not space:
        raise CliError(
            f"not a canary: {canary}", hint="specify namespace/name, or the name with -n", code=Exit.USAGE
        )
    with place(data, kubeconfig, context) as found:
        if isinstance(found, Path):
            from toolcrib_cli.stopping.in_local_mode import LocalAgents

            bodies = LocalAgents(found).objects((_KIND,), space or None)
        else:
            from toolcrib_cli.stopping.in_cluster import ClusterAgents

            bodies = ClusterAgents(found).objects((_KIND,), space or None)
    wanted = [body for body in bodies if not name or body["metadata"]["name"] == name]
    if not wanted:
        what = f"no ToolCanary {space}/{name}" if name else "no ToolCanary"
        raise CliError(f"there is {what}", hint="`toolcrib get toolcanaries` lists them")
    return wanted


def _of_canary(body: Mapping[str, Any]) -> dict[str, Any]:
    from toolcrib.canary.statistics import Z, newcombe

    status, meta, spec = body.get("status") or {}, body["metadata"], body["spec"]
    looks = []
    for number, look in enumerate(status.get("looks") or (), 1):
        sides = {
            side: {name: look[side].get(name, 0) for name in _COUNTS} for side in ("candidate", "stable")
        }
        rates = [(sides[side]["failed"], sides[side]["called"]) for side in ("candidate", "stable")]
        found = newcombe(rates[0], rates[1], Z) if all(called for _, called in rates) else None
        looks.append(
            {"look": number, "at": look["at"], "outcome": look["outcome"], **sides, **_interval(found)}
        )
    ready: Mapping[str, Any] = next((c for c in status.get("conditions") or () if c["type"] == "Ready"), {})
    return {
        "canary": f"{meta.get('namespace', 'default')}/{meta['name']}",
        "tool": spec["tool"],
        "share": spec.get("share", 10),
        "guard": spec.get("guard", 2),
        "state": ready.get("reason", "Pending"),
        "result": status.get("result"),
        "looks": looks,
    }


def _of_agents(first: str, second: str, places: list[str]) -> dict[str, Any]:
    from statistics import NormalDist

    from toolcrib.canary.statistics import LEAST_CALLS, newcombe
    from toolcrib_cli import comparing, decision_logs, decision_records

    records = decision_logs.records(decision_logs.found(places), decision_records.Filter())
    sides = comparing.compared(records, first, second)
    rates = [(side.failed, side.called) for side in sides]
    found = None
    if all(called for _, called in rates):
        found = newcombe(rates[1], rates[0], NormalDist().inv_cdf(0.975))
    if found is None or min(called for _, called in rates) < LEAST_CALLS:
        verdict = f"too few calls: {LEAST_CALLS} of each agent tell something"
    elif found.low > 0:
        verdict = f"{first} fails less"
    else:
        verdict = f"{second} fails less" if found.high < 0 else "no clear difference"
    return {
        "agents": [
            {"agent": s.agent, "tools": len(s.tools), **{name: getattr(s, name) for name in _COUNTS}}
            for s in sides
        ],
        "result": verdict,
        **_interval(found),
    }


def _interval(found: Interval | None) -> dict[str, float | None]:
    if found is None:
        return {"difference": None, "low": None, "high": None}
    return {name: round(getattr(found, name), 4) for name in ("difference", "low", "high")}


def _tell(row: Mapping[str, Any]) -> None:
    if "agents" in row:
        output.table(
            ("agent", "tools", *_COUNTS, "failure"),
            [(a["agent"], a["tools"], *(f"{a[n]:,}" for n in _COUNTS), _rate(a)) for a in row["agents"]],
        )
        output.line(f"{row['result']} (difference {_span(row)}, 95 %)")
        return
    output.heading(f"{row['canary']}: {row['tool']}, {row['share']} % of the callers, {row['state']}")
    rows = []
    for look in row["looks"]:
        for side in ("candidate", "stable"):
            counts = look[side]
            told = (look["outcome"], _span(look)) if side == "candidate" else ("", "")
            rows.append(
                (look["look"], look["at"], side, *(f"{counts[n]:,}" for n in _COUNTS), _rate(counts), *told)
            )
    if rows:
        output.table(("look", "at", "side", *_COUNTS, "failure", "outcome", "difference"), rows)
    else:
        output.line("No look yet: the first is after a fifth of spec.duration.")


def _rate(counts: Mapping[str, int]) -> str:
    return f"{counts['failed'] / counts['called']:.1%}" if counts["called"] else "-"


def _span(row: Mapping[str, Any]) -> str:
    if row["difference"] is None:
        return "-"
    return f"{row['difference']:+.1%} ({row['low']:+.1%} to {row['high']:+.1%})"
