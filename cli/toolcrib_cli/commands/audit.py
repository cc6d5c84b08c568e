"""The decision log for people: whether it is whole, what happens now, who used what."""

from __future__ import annotations

import itertools
import json
import sys
from collections import deque
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from toolcrib_cli import options, output
from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.examples import Example, epilog, examples
from toolcrib_cli.output import Format

app = typer.Typer(help="Read and verify decision logs.", no_args_is_help=True)

Logs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FILE|FOLDER]...",
        help="Decision logs, including rotated files. - is standard input. Default: the local mode's log.",
        show_default=False,
    ),
]
KeyFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--key-file",
        help="File with the secret that the log is chained with. Repeatable, for changed secrets. Default: audit.key beside the log.",
    ),
]
Agent = Annotated[
    str | None,
    typer.Option(
        "--agent",
        help="Only this agent: namespace/name of a service account, or issuer:subject. * is a wildcard.",
    ),
]
Tool = Annotated[str | None, typer.Option("--tool", help="Only this tool: id or name. * is a wildcard.")]
Action = Annotated[
    str | None,
    typer.Option(
        "--action",
        help="Only this action: list, search, describe, load, call, watch, …, or policy and identity (records for replays).",
    ),
]
Reason = Annotated[str | None, typer.Option("--reason", help="Only this reason, such as no_binding.")]
Token = Annotated[str | None, typer.Option("--jti", help="Only the token with this jti claim.")]
Denied = Annotated[bool, typer.Option("--denied", help="Only denied requests.")]
Since = Annotated[str | None, typer.Option("--since", help="Start: a time, a date, or an age (90m, 7d).")]
Until = Annotated[str | None, typer.Option("--until", help="End, exclusive: a time, a date, or an age.")]

_LOCAL_LOG, _LOCAL_KEY = "decisions.jsonl", "audit.key"
_CONFIGMAP = "configmap"


def places(given: list[str] | None, data: Path | None) -> list[str]:
    """The logs that are meant: those given, else the local mode's."""
    if given:
        return given
    return [str(options.data_folder(data) / _LOCAL_LOG)]


@examples(
    "toolcrib audit verify",
    Example(
        "toolcrib audit verify decisions.jsonl --key-file audit.key --anchors configmap",
        not_run="reads the anchors from a cluster",
    ),
)
def verify(
    logs: Logs = None,
    key_file: KeyFiles = None,
    anchors: Annotated[
        str | None,
        typer.Option(
            help="Anchors that the operator stored: a file, configmap, or configmap/NAMESPACE/NAME. "
            "Without anchors, a truncated or rewritten log can go undetected.",
        ),
    ] = None,
    replica: Annotated[
        list[str] | None,
        typer.Option("--replica", help="Only this replica. Repeatable."),
    ] = None,
    mixed: Annotated[
        bool, typer.Option("--mixed", help="Skip lines that are not records, as in `kubectl logs`.")
    ] = False,
    kubeconfig: Annotated[str | None, typer.Option(help="Kubeconfig for --anchors configmap.")] = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig.")] = None,
    data: options.Data = None,
    out: options.Output = Format.TABLE,
) -> None:
    """Check a decision log for edited, removed, moved and added lines. Exit code 1: it is not whole.

    With anchors, it also finds a truncated end.
    """
    from toolcrib.audit.verification import Verification
    from toolcrib_cli import decision_logs

    found = places(logs, data)
    beside = [] if key_file else keys_beside(found)
    key_file = key_file or beside
    kept = anchors_of(anchors, kubeconfig, context) if anchors else []
    check = Verification(decision_logs.keys(key_file), kept, replica)
    decision_logs.feed(check, decision_logs.found(found), mixed=mixed)
    report = check.finish()
    unmet = bool(anchors) and not report.anchors
    unread = not key_file and {f.kind for f in report.findings} == {"unknown_key"}
    if out is not Format.TABLE:
        told = asdict(report) | {"findings": [f._asdict() for f in report.findings]}
        told["replicas"] = {name: head._asdict() for name, head in report.replicas.items()}
        whole = bool(report.records) and not report.findings and not unmet
        told["ends"] = "unanchored" if report.unanchored or not report.records else "anchored"
        output.data(told | {"whole": whole, "keys_beside": beside}, out)
    else:
        ends = _ends(report, asked=bool(anchors), local=not logs)
        _tell(report, beside, ends, unread=unread, unmet=unmet)
    if unread:
        raise typer.Exit(Exit.USAGE)
    if report.findings or not report.records or unmet:
        raise typer.Exit(Exit.FAILED)


def keys_beside(given: list[str]) -> list[str]:
    """Key files that lie beside these logs, as the local mode's does."""
    folders = (path if (path := Path(place)).is_dir() else path.parent for place in given if place != "-")
    return list(dict.fromkeys(str(key) for folder in folders if (key := folder / _LOCAL_KEY).is_file()))


def _ends(report: Any, *, asked: bool, local: bool) -> str:
    """What may have been cut unseen."""
    if not report.unanchored:
        return ""
    if not asked:
        if local:
            return "a possibly truncated end: the local mode keeps no anchors"
        return "possibly truncated ends: see --anchors"
    return f"possibly truncated ends: no anchor for the last run (in a stream: for every run) of {', '.join(report.unanchored)}"


def anchors_of(source: str, kubeconfig: str | None, context: str | None) -> list[Any]:
    """The anchors that `--anchors` names.

    Raises:
        CliError: they cannot be read.
    """
    from toolcrib_cli import decision_logs

    if source == _CONFIGMAP or source.startswith(f"{_CONFIGMAP}/"):
        from toolcrib_cli import cluster

        _, _, place = source.partition("/")
        namespace, _, name = (place or "toolcrib-system/toolcrib-audit-anchors").partition("/")
        if not name:
            raise CliError(
                f"--anchors: {source!r} has no name", hint="specify configmap/NAMESPACE/NAME", code=Exit.USAGE
            )
        found = cluster.read_config_map(namespace, name, kubeconfig=kubeconfig, context=context)
        return decision_logs.anchors(found.get(decision_logs.ANCHORS_KEY, ""), source)
    try:
        text = Path(source).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise CliError(
            f"cannot read the anchors {source}: {error}",
            hint="specify a file, or configmap/NAMESPACE/NAME",
            code=Exit.USAGE,
        ) from error
    return decision_logs.anchors(text, source)


def _tell(report: Any, beside: list[str], ends: str, *, unread: bool, unmet: bool) -> None:
    """For people. `ends`: what may have been cut unseen. `unread`: no key was given. `unmet`: the anchors are none."""
    for finding in report.findings:
        output.line(f"{finding.where}: {finding.kind}: {finding.message}", style="red")
    replicas = f"{len(report.replicas)} replica" + ("s" if len(report.replicas) != 1 else "")
    span = f", {report.first} to {report.last}" if report.first else ""
    output.line(f"{report.records} records of {replicas} in {report.chains} runs{span}")
    if report.lost:
        lost = ", ".join(f"{number} {reason}" for reason, number in sorted(report.lost.items()))
        output.line(f"lost, according to the log: {lost}")
    if report.interrupted:
        output.line(
            f"interrupted runs: {report.interrupted}. Records of the last moment of each may be missing, "
            "and the counts of requests that were repeated in the last audit.fold_seconds (a minute)"
        )
    if report.unkeyed:
        output.line(
            "chained without a key: anyone who can write the file could have rewritten it",
            style="yellow",
        )
    for key in beside:
        output.line(
            f"key: {key}, beside the log: anyone who can read both could have rewritten the log",
            style="yellow",
        )
    if report.anchors:
        output.line(f"{report.anchors} anchors")
    if not report.records:
        output.line("no records found: nothing was verified", style="red")
    elif unread:
        output.line("not verified: no key found. Specify --key-file", style="bold red")
    elif report.findings:
        output.line(f"NOT whole: {len(report.findings)} findings", style="bold red")
    elif unmet:
        output.line("not compared with anchors: none were found", style="bold red")
    else:
        output.line(f"whole, except for {ends}" if ends else "whole", style="yellow" if ends else "green")


@examples(
    "toolcrib audit tail --agent heist/planner --action call",
    Example("toolcrib audit tail --follow --denied", not_run="it runs until Ctrl-C"),
)
def tail(
    logs: Logs = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new records until Ctrl-C.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="Number of records.")] = 10,
    agent: Agent = None,
    tool: Tool = None,
    action: Action = None,
    reason: Reason = None,
    denied: Denied = False,
    jti: Token = None,
    data: options.Data = None,
    out: options.Output = Format.TABLE,
) -> None:
    """Print the last records, one per line."""
    from toolcrib_cli import decision_logs, decision_records

    wanted = decision_records.Filter(agent, tool, action, reason, denied, token=jti)
    files, passed = decision_logs.found(places(logs, data)), decision_logs.Passed()
    if follow and files[-1] == decision_logs.STDIN:
        raise CliError(
            "--follow needs a file, not standard input", hint="specify the log file", code=Exit.USAGE
        )
    for record in deque(decision_logs.records(files, wanted, passed), maxlen=lines):
        _print(record, out)
    tell_passed(passed.lines)
    if follow:
        sys.stdout.flush()
        for record in decision_logs.followed(files[-1], wanted):
            _print(record, out)
            sys.stdout.flush()


@examples(
    "toolcrib audit query --agent heist/planner",
    "toolcrib audit query --denied --since 1h --tool 'heist/database*' --records",
)
def query(
    logs: Logs = None,
    since: Since = None,
    until: Until = None,
    agent: Agent = None,
    tool: Tool = None,
    action: Action = None,
    reason: Reason = None,
    denied: Denied = False,
    jti: Token = None,
    each: Annotated[
        bool, typer.Option("--records", help="Print the records instead of the summary.")
    ] = False,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Maximum number of records, with --records.")
    ] = None,
    data: options.Data = None,
    out: options.Output = Format.TABLE,
) -> None:
    """Summarize who used which tool, or print the matching records."""
    from toolcrib_cli import decision_logs, decision_records

    wanted = decision_records.Filter(
        agent, tool, action, reason, denied,
        since=decision_records.moment(since) if since else None,
        until=decision_records.moment(until) if until else None,
        token=jti,
    )  # fmt: skip
    passed = decision_logs.Passed()
    found = decision_logs.records(decision_logs.found(places(logs, data)), wanted, passed)
    if each or wanted.explains:
        for record in itertools.islice(found, limit):
            _print(record, out)
        tell_passed(passed.lines)
        return
    used = sorted(decision_records.summary(found, tool).items())
    tell_passed(passed.lines)
    if out is not Format.TABLE:
        output.data([{"agent": a, "action": b, "tool": c, **asdict(row)} for (a, b, c), row in used], out)
        return
    if not used:
        output.line(
            "No record matches. Specify an agent as namespace/name and a tool as namespace/object or its last part."
            " Patterns work too: --agent '*bot*', --tool '*query*'.",
            stderr=True,
        )
    output.table(
        ("agent", "action", "tool", "allowed", "denied", "failed", "first", "last", "why not"),
        (
            (
                who,
                what,
                which or "-",
                row.allowed,
                row.denied,
                row.failed,
                row.first,
                row.last,
                _reasons(row.reasons),
            )
            for (who, what, which), row in used
        ),
    )


def tell_passed(lines: int) -> None:
    """Say how many lines were no records."""
    if lines:
        what = "1 line that is" if lines == 1 else f"{lines} lines that are"
        output.line(f"skipped {what} not a record: see `toolcrib audit verify`", style="yellow", stderr=True)


def _reasons(counts: dict[str, int]) -> str:
    return " ".join(f"{reason}={number}" for reason, number in sorted(counts.items())) or "-"


def _print(record: dict[str, Any], out: Format) -> None:
    """One line for a person; one line of JSON; one document of YAML."""
    if out is Format.JSON:
        sys.stdout.write(json.dumps(record) + "\n")
    elif out is Format.YAML:
        sys.stdout.write("---\n")
        output.data(record, out)
    else:
        output.line(" ".join(_words(record)), style="red" if record.get("allowed") is False else "")


def _words(record: dict[str, Any]) -> Iterable[str]:
    from toolcrib.audit import chain as audit_chain
    from toolcrib_cli import decision_records

    yield str(record["ts"])
    yield str(record.get("replica", "-"))
    action = str(record["action"])
    if action.startswith("audit."):
        yield action
        yield ", ".join(f"{e['count']} {e['action']} lost: {e['reason']}" for e in record.get("lost", ()))
        return
    if audit_chain.is_evidence(action):
        yield action
        yield (
            " ".join((f"revision {record['revision']}", *decision_records.stated(record)))
            if "revision" in record
            else f"{record.get('who')}: {decision_records.agent_of(record)}"
        )
        return
    yield decision_records.agent_of(record)
    yield action
    if tools := ", ".join(filter(None, decision_records.tools_of(record))):
        yield tools
    if "count" in record:
        yield f"{record['count']} tools"
    if "allowed" in record:
        yield "allowed" if record["allowed"] else "DENIED"
        yield str(record.get("reason", ""))
    if outcome := record.get("outcome"):
        yield str(outcome)
    if question := record.get("question"):
        yield str(question)
    if phase := record.get("phase"):
        yield f"({phase})"
    if binding := record.get("binding"):
        yield f"by {binding['ref']}@{binding['generation']}"
    if "ms" in record:
        yield f"{record['ms']:g} ms"
    if "repeated" in record:
        # its time is that of the last one counted: it stands below records that are younger
        yield f"x{decision_records.count_of(record)} since {record['repeated']['since']}, summed up later"


for _name, _command in (("verify", verify), ("tail", tail), ("query", query)):
    app.command(_name, epilog=epilog(_command))(_command)
