"""`toolcrib access suggest`: smaller bindings that a decision log proves to break nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from toolcrib_cli import options, output
from toolcrib_cli.commands import audit
from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.examples import Example, examples
from toolcrib_cli.output import Format

if TYPE_CHECKING:
    from toolcrib.audit.suggestions import Evidence, Suggestion
    from toolcrib_cli.suggesting import Suggested

_SHOWN = 20
_UNUSED = "no call needs it"


@examples(
    Example("toolcrib access suggest --since 7d", not_run="needs a log of seven days"),
    Example(
        "toolcrib access suggest heist/hacker --log decisions/ --anchors configmap -o patch",
        not_run="needs the log of thirty days, and reads the anchors from a cluster",
    ),
)
def suggest(
    binding: Annotated[
        str | None,
        typer.Argument(
            metavar="[BINDING]",
            help="Only this binding: namespace/name, or the name of a cluster binding.",
            show_default=False,
        ),
    ] = None,
    log: Annotated[
        list[str] | None,
        typer.Option(
            "--log",
            help="Decision logs of all replicas: files or folders. Repeatable. Default: the local mode's log.",
        ),
    ] = None,
    since: Annotated[
        str, typer.Option("--since", help="Start of the period: a time, a date, or an age (90m, 7d).")
    ] = "30d",
    key_file: audit.KeyFiles = None,
    anchors: Annotated[
        str | None,
        typer.Option(
            help="Anchors that the operator stored: a file, configmap, or configmap/NAMESPACE/NAME."
        ),
    ] = None,
    kubeconfig: Annotated[str | None, typer.Option(help="Kubeconfig for --anchors configmap.")] = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig.")] = None,
    data: options.Data = None,
    out: Annotated[
        Literal["table", "json", "patch"],
        typer.Option("--output", "-o", help="patch prints what `kubectl patch --type json` takes."),
    ] = "table",
) -> None:
    """Suggest smaller bindings: without subjects, scopes, servers and names that no call used.

    Only bindings that stayed unchanged for the whole period are looked at, and nothing is applied. The log must be whole and
    every call in it must stay allowed. Exit code 2: the log does not support a suggestion; the message says what it lacks.
    """
    from toolcrib_cli import decision_logs, decision_records, suggesting

    files = decision_logs.found(audit.places(log, data))
    keys = decision_logs.keys(key_file or audit.keys_beside(files))
    kept = audit.anchors_of(anchors, kubeconfig, context) if anchors else []
    try:
        found = suggesting.suggested(files, decision_records.moment(since), keys, kept, binding)
    except LookupError as error:
        (several,) = error.args
        raise CliError(
            f"{'several bindings are' if several else 'no binding is'} called {binding} in this log",
            hint=f"specify one of {', '.join(several)}" if several else "specify namespace/name",
            code=Exit.USAGE,
        ) from error
    if found.lacks:
        raise CliError(
            f"the log does not support a suggestion: {'; '.join(found.lacks)}",
            hint="give the whole logs of all replicas, and their keys; --since chooses a shorter period",
            code=Exit.USAGE,
        )
    if found.withheld:
        names = ", ".join(s.binding.ref for s in found.withheld)
        raise CliError(
            f"a replay with the suggestion decides otherwise, so it is withheld: {names}",
            hint="report this: a suggestion must change no decision",
            code=Exit.FAILED,
        )
    match out:
        case "json":
            output.data(_document(found), Format.JSON)
        case "patch":
            typer.echo("\n---\n".join(map(_patch, found.suggestions)) or "# nothing to remove")
        case _:
            _tell(found)


def _tell(found: Suggested) -> None:
    reading, report = found.reading, found.report
    rows = []
    for s in found.suggestions:
        if s.narrowed is None:
            rows.append((s.binding.ref, "- delete", "", "", "0", "", _UNUSED))
            continue
        for sign, several in (("- remove", s.gone), ("  keep", s.left)):
            rows += [
                (s.binding.ref, sign, _field(e), e.text, f"{e.times:,}", e.last, e.kept or _why(sign, e))
                for e in several
            ]
    if rows:
        output.table(("binding", "change", "list", "entry", "calls", "last", "why"), rows)
    else:
        output.line("Every entry of every binding that stayed unchanged was used.", style="green")
    refused = sorted(reading.uses.refused.items(), key=lambda each: (-len(each[1].agents), -each[1].times))
    if refused:
        output.heading("Asked for in vain")
        output.table(
            ("tool", "reason", "agents", "times", "last"),
            [
                (tool, reason, len(asked.agents), asked.times, asked.last)
                for (tool, reason), asked in refused[:_SHOWN]
            ],
        )
    idle = _idle(found)
    if idle:
        output.heading("Granted to several subjects, and never called")
        output.table(("tool", "subjects"), idle[:_SHOWN])
    output.line(
        f"{reading.uses.calls:,} calls since {reading.since}, {report.records:,} records of {len(report.replicas)} replica(s)",
        stderr=True,
    )
    if report.unanchored:
        output.line("an end of the log may have been cut unseen: see --anchors", stderr=True)


def _idle(found: Suggested) -> list[tuple[str, int]]:
    from toolcrib.audit.suggestions import idle

    end = found.reading.end
    return [] if end is None else idle(found.reading.uses, end)


def _field(e: Evidence) -> str:
    return "tools.allow" if e.entry.field == "allow" else e.entry.field


def _why(sign: str, e: Evidence) -> str:
    if sign == "  keep":
        return "used"
    if e.times:
        return "other entries allow the same calls"
    wild = e.entry.field == "allow" and ("*" in e.text or "?" in e.text)
    return "replaced by the names that were used" if wild else "never used"


def _patch(s: Suggestion) -> str:
    """A JSON Patch (RFC 6902) in YAML, each line with its evidence."""
    from toolcrib import text
    from toolcrib.audit.suggestions import operations

    b = s.binding
    kind = "asb" if b.namespace else "casb"
    place = f" -n {b.namespace}" if b.namespace else ""
    lines = [f"# {b.ref}, generation {b.generation}"]
    if s.narrowed is None:
        return "\n".join([*lines, f"# {_UNUSED}: kubectl delete {kind} {b.name}{place}"])
    lines.append(f"# kubectl patch {kind} {b.name}{place} --type json --patch-file FILE")
    for operation, evidence in operations(s):
        said = ""
        if evidence is not None:
            used = f"{evidence.times} calls, last {evidence.last}; " if evidence.times else ""
            said = f"  # {text.escape(evidence.text)}: {used}{_why('', evidence)}"
        lines.append(f"- {_flow(operation)}{said}")
    lines += [
        f"# kept: {_field(e)} {text.escape(e.text)}: " + (e.kept or f"{e.times} calls, last {e.last}")
        for e in s.left
    ]
    return "\n".join(lines)


def _flow(operation: dict[str, Any]) -> str:
    import json

    return json.dumps(operation, ensure_ascii=True)


def _document(found: Suggested) -> dict[str, Any]:
    from toolcrib.audit.suggestions import operations

    def told(e: Evidence) -> dict[str, Any]:
        return {
            "list": _field(e),
            "entry": e.text,
            "calls": e.times,
            "last": e.last or None,
            **({"kept": e.kept} if e.kept else {}),
        }

    return {
        "since": found.reading.since,
        "calls": found.reading.uses.calls,
        "suggestions": [
            {
                "binding": s.binding.ref,
                "uid": s.binding.uid,
                "generation": s.binding.generation,
                "delete": s.narrowed is None,
                "remove": [told(e) for e in s.gone],
                "keep": [told(e) for e in s.left],
                "patch": [] if s.narrowed is None else [operation for operation, _ in operations(s)],
            }
            for s in found.suggestions
        ],
        "refused": [
            {
                "tool": tool,
                "reason": reason,
                "agents": len(asked.agents),
                "times": asked.times,
                "last": asked.last,
            }
            for (tool, reason), asked in sorted(
                found.reading.uses.refused.items(), key=lambda each: (-len(each[1].agents), -each[1].times)
            )
        ],
        "neverCalled": [{"tool": tool, "subjects": subjects} for tool, subjects in _idle(found)],
    }
