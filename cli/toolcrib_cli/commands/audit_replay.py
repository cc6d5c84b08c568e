"""`toolcrib audit replay`: the decisions of a log made again, from the log alone, also by another policy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolcrib_cli import options, output
from toolcrib_cli.commands import audit
from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.examples import examples
from toolcrib_cli.output import Format

if TYPE_CHECKING:
    from toolcrib_cli.replays import Otherwise, Replayed

_WHY = {
    "not_decided": "sums, cut calls, requests without an identity",
    "no_policy": "the log does not state their policy (gaps, calls that began in an earlier file)",
    "no_identity": "the log does not say whose they are",
    "other_decider": "decided by another version of the authorizer",
    "unreadable": "not as this version writes records",
}


@examples(
    "toolcrib audit replay",
    "toolcrib audit replay --since 7d --policy examples/heist",
)
def replay(
    logs: audit.Logs = None,
    policy: Annotated[
        list[Path] | None,
        typer.Option(
            "--policy",
            help="Bindings as files or folders: list what would have been decided otherwise with them. Repeatable.",
        ),
    ] = None,
    prune: Annotated[
        bool,
        typer.Option("--prune", help="With --policy: treat bindings that are not in the files as deleted."),
    ] = False,
    since: audit.Since = None,
    until: audit.Until = None,
    agent: audit.Agent = None,
    tool: audit.Tool = None,
    data: options.Data = None,
    out: options.Output = Format.TABLE,
) -> None:
    """Decide every record again, with the policy that the log states. Exit code 1: a decision differs.

    Give whole files: what a decision rests on may stand at the start. --since and the other filters choose what is counted.
    """
    from toolcrib.errors import InvalidManifest
    from toolcrib_cli import decision_logs, decision_records, replays

    if prune and not policy:
        raise CliError("--prune needs --policy", hint="specify --policy FOLDER", code=Exit.USAGE)
    wanted = decision_records.Filter(
        agent, tool,
        since=decision_records.moment(since) if since else None,
        until=decision_records.moment(until) if until else None,
    )  # fmt: skip
    passed = decision_logs.Passed()
    everything = decision_logs.records(
        decision_logs.found(audit.places(logs, data)), decision_records.everything, passed
    )
    try:
        done = replays.replayed(everything, wanted, _otherwise(policy, prune=prune))
    except InvalidManifest as error:
        raise CliError(
            f"--policy: {error.findings[0]}", hint="check the files with `toolcrib validate`", code=Exit.USAGE
        ) from error
    audit.tell_passed(passed.lines)
    if out is Format.TABLE:
        _tell(done, compared=bool(policy))
    else:
        output.data(_document(done, compared=bool(policy)), out)
    if done.different or not (done.replayed or done.skipped):
        raise typer.Exit(Exit.FAILED)


def _otherwise(paths: list[Path] | None, *, prune: bool) -> Otherwise | None:
    """The policy of the files; None where none are given.

    Raises:
        CliError: they cannot be read, or hold no binding.
    """
    if not paths:
        return None
    from toolcrib_cli import manifests, replays

    contents = [manifests.read(file) for file in manifests.files_in(paths)]
    problems = [problem for content in contents for problem in content.problems if problem.refused]
    if problems:
        raise CliError(str(problems[0]), hint="check the files with `toolcrib validate`", code=Exit.USAGE)
    found = [
        {**loaded.body, "metadata": {**loaded.body["metadata"], "namespace": loaded.namespace}}
        if loaded.namespace
        else loaded.body
        for content in contents
        for loaded in content.objects
        if loaded.kind in ("AgentScopeBinding", "ClusterAgentScopeBinding")
    ]
    if not found:
        raise CliError(
            "--policy: no binding is in these files", hint="specify a folder with bindings", code=Exit.USAGE
        )
    return replays.Otherwise(found, prune=prune)


def _tell(done: Replayed, *, compared: bool) -> None:
    if not (done.replayed or done.skipped):
        output.line("no decision found: nothing was replayed", style="red")
        return
    for judged in done.differences:
        record = judged.record
        output.line(
            f"{record['ts']} {record['action']} {judged.tool or ''}: recorded {_shown(judged.recorded)}, "
            f"decided again {_shown(judged.found)}",
            style="red",
        )
    output.table(
        ("decisions", "count", ""),
        [
            ("equal", f"{done.equal:,}", ""),
            ("different", f"{done.different:,}", ""),
            *(
                (f"not replayed: {why}", f"{n:,}", _WHY.get(why, ""))
                for why, n in sorted(done.skipped.items())
            ),
        ],
    )
    if not compared:
        return
    rows = sorted(
        done.changes.items(), key=lambda each: (each[0].gains, -each[1].times, each[0].agent, each[0].tool)
    )
    if not rows:
        output.line("With --policy every decision is the same.", style="green")
        return
    output.table(
        (
            "change",
            "agent",
            "action",
            "tool",
            "times",
            "first",
            "last",
            "last request",
            "reason of the refusal",
        ),
        [
            (
                "+ gained" if c.gains else "- lost",
                c.agent,
                c.action,
                c.tool,
                seen.times,
                seen.first,
                seen.last,
                seen.example,
                c.reason,
            )
            for c, seen in rows
        ],
    )


def _shown(told: tuple[Any, ...]) -> str:
    return " ".join(str(each) for each in told if each is not None) or "-"


def _document(done: Replayed, *, compared: bool) -> dict[str, Any]:
    document: dict[str, Any] = {
        "replayed": done.replayed,
        "equal": done.equal,
        "different": done.different,
        "notReplayed": dict(sorted(done.skipped.items())),
        "differences": [
            {
                "ts": judged.record["ts"],
                "action": judged.record["action"],
                "tool": judged.tool,
                "recorded": list(judged.recorded),
                "decided": list(judged.found),
            }
            for judged in done.differences
        ],
    }
    if compared:
        document["changes"] = [
            {
                "change": "gained" if c.gains else "lost",
                "agent": c.agent,
                "action": c.action,
                "tool": c.tool,
                "reason": c.reason,
                "times": seen.times,
                "first": seen.first,
                "last": seen.last,
                "example": seen.example,
            }
            for c, seen in done.changes.items()
        ]
    return document
