"""Asking, from the command line: what can a subject do, who can use a tool, why, and what would a change change?"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from toolcrib_cli import options, output
from toolcrib_cli.commands import access_source
from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.examples import Example, epilog, examples
from toolcrib_cli.output import Format

if TYPE_CHECKING:
    from toolcrib.access.answers import Holder, Review, ReviewedBinding, Rule
    from toolcrib_cli.prediction.sources import Source

app = typer.Typer(
    help="Ask who may do what, and why. Works with manifests that are not applied yet.", no_args_is_help=True
)

_WHOM = "ServiceAccount/NS/NAME (or NS/NAME), Agent/NS/NAME, OAuthClient/ID, User/NAME or Group/NAME."
Subject = Annotated[str, typer.Argument(help=_WHOM, autocompletion=access_source.completed_subjects)]
Tool = Annotated[
    str,
    typer.Argument(
        help="Tool id (namespace/name), or a unique name.", autocompletion=access_source.completed_tools
    ),
]
Scope = Annotated[
    str,
    typer.Argument(
        help="Scope, such as database:read.",
        autocompletion=access_source.completed_scopes,
        show_default=False,
    ),
]
Action = Literal["list", "search", "describe", "load", "call", "watch", "stats"]
Files = Annotated[
    list[Path] | None,
    typer.Option(
        "--binding", "-b", help="Assume that these manifests are applied: files, folders or -. Repeatable."
    ),
]


def _where(
    delete: Annotated[
        list[str] | None,
        typer.Option(
            "--delete",
            help="Assume that this object is deleted: Kind/namespace/name or Kind/name. Repeatable.",
        ),
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            help="Only tools in this namespace, which is also that of manifests without one.",
            autocompletion=access_source.completed_namespaces,
        ),
    ] = None,
    action: Annotated[Action, typer.Option("--action", help="Action to ask about.")] = "call",
    issuer: Annotated[
        str | None,
        typer.Option("--issuer", help="Issuer of an OAuthClient, User or Group, if bindings do not tell."),
    ] = None,
    scopes: Annotated[
        str | None,
        typer.Option("--scopes", help='Scopes in the token ("a b"). Default: those that bindings need.'),
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option("--group", help="Further group in the token. Repeatable.")
    ] = None,
    client: Annotated[str | None, typer.Option("--client", help="OAuth client of a user's token.")] = None,
    kubeconfig: Annotated[
        str | None,
        typer.Option(
            "--kubeconfig",
            help="Kubeconfig. Ask this cluster even if a local mode runs.",
            show_default="KUBECONFIG, else ~/.kube/config",
        ),
    ] = None,
    context: Annotated[
        str | None,
        typer.Option(
            "--context", help="Context of the kubeconfig. Ask its cluster even if a local mode runs."
        ),
    ] = None,
    manifests: Annotated[
        list[Path] | None,
        typer.Option(
            "--manifests",
            "-m",
            exists=True,
            help="Ask about this folder or file instead of a cluster. Repeatable.",
        ),
    ] = None,
    registry: Annotated[
        str | None,
        typer.Option("--registry", help="Ask the registry at this address. The token needs registry:admin."),
    ] = None,
    trusted_namespace_label: Annotated[
        list[str] | None,
        typer.Option(
            "--trusted-namespace-label", help="Namespace label that the operator trusts. Repeatable."
        ),
    ] = None,
    cluster_issuer: Annotated[
        str | None,
        typer.Option(
            "--cluster-issuer",
            help="Issuer of service account tokens, for groups of service accounts.",
            show_default="what the API server says",
        ),
    ] = None,
    as_: options.As = None,
    data: options.Data = None,
    token_file: options.TokenFile = None,
    ca_file: options.CaFile = None,
    out: options.Output = Format.TABLE,
) -> None:
    """Options of every question: what it is about, and where the answer comes from."""


def _question(body: Callable[..., None]) -> Callable[..., None]:
    """`body` as a command: with the options of `_where` behind its own, and `source` and `out` made of them.

    `binding` and `prune` of a body are options that its source is made with; it gets the rest.
    """
    # what a source is need not be loaded to know the options
    own = inspect.signature(body, eval_str=True, locals={"Source": Any}).parameters
    shared = inspect.signature(_where, eval_str=True).parameters
    mine = [p for name, p in own.items() if name not in ("source", "out")]

    @functools.wraps(body)
    def command(**given: Any) -> None:
        where = {name: given.pop(name) for name in shared}
        with ExitStack() as stack:
            source = access_source.chosen(
                stack, files=given.pop("binding", None), prune=given.pop("prune", False), **where
            )
            body(source=source, out=where["out"], **given)

    parameters = [p.replace(kind=p.KEYWORD_ONLY) for p in (*mine, *shared.values())]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


@_question
@examples(
    "toolcrib access what-can heist/hacker",
    "toolcrib access what-can heist/hacker --binding examples/access/hacker-database.yaml",
)
def what_can(
    source: Source,
    out: Format,
    subject: Subject,
    binding: Files = None,
    hidden: Annotated[
        bool, typer.Option("--hidden", help="Also list hidden tools, with the reason.")
    ] = False,
) -> None:
    """List the tools that a subject may call, and the binding that grants each.

    A server's resources are one row, SERVER:@resources, and so are its prompts.
    """
    answer = source.what_can(subject, hidden=hidden)
    if _printed(answer, source, out):
        return
    columns = ("tool", "name", "allowed", "reason", "by", "generation", "rule")
    output.table(columns, [(t.tool_id, t.name or "", *_decided(t)) for t in answer.tools])
    namespace, listed = source.question.namespace, sum(t.allowed for t in answer.tools)
    of = "" if namespace is None else f"{listed} tool(s) in {namespace}, "
    among = "tool(s)" if namespace is None else "in all"
    output.line(f"{answer.who.subject} sees {of}{answer.visible} {among}.", stderr=True)
    if answer.ambiguous:
        output.line(f"Names that several of its tools share: {', '.join(answer.ambiguous)}.", stderr=True)


@_question
@examples("toolcrib access who-can calculator")
def who_can(source: Source, out: Format, tool: Tool, binding: Files = None) -> None:
    """List the subjects that may call a tool. Next come subjects that a binding grants but something blocks.

    Users and group members that no binding names are not listed: their group is.
    """
    answer = source.who_can(tool)
    if _printed(answer, source, out):
        return
    columns = ("subject", "issuer", "allowed", "reason", "by", "generation", "token needs", "rule")
    rows = []
    for s in sorted(answer.subjects, key=lambda s: not s.allowed):
        *decided, rule = _decided(s)
        rows.append((s.who.subject, s.who.issuer or "", *decided, " ".join(s.token_scopes), rule))
    output.table(columns, rows)
    allowed = sum(s.allowed for s in answer.subjects)
    output.line(f"{allowed} subject(s) may {answer.action.value} {answer.tool_id}.", stderr=True)


@_question
@examples("toolcrib access who-holds simulation:read")
def who_holds(source: Source, out: Format, scope: Scope, binding: Files = None) -> None:
    """List the subjects that hold a scope: by which binding, over which namespaces and servers, until when.

    Grants that are not in effect come last, with the reason.
    """
    answer = source.who_holds(scope)
    if _printed(answer, source, out):
        return
    columns = ("subject", "issuer", "holds", "by", "generation", "namespaces", "servers", "expires", "detail")
    rows = [
        (
            h.who.subject,
            h.who.issuer or "",
            "yes" if h.holds else "no",
            _ref(h.binding),
            str(h.binding.generation),
            _all_or(h.namespaces),
            _all_or(h.servers),
            h.until or "never",
            _grant_detail(h),
        )
        for h in sorted(answer.holders, key=lambda h: not h.holds)
    ]
    output.table(columns, rows)
    holding = len({(h.who.subject, h.who.issuer) for h in answer.holders if h.holds})
    output.line(f"{holding} subject(s) hold {answer.scope}; {answer.tools} tool(s) have it.", stderr=True)


def _all_or(names: tuple[str, ...] | None) -> str:
    return "all" if names is None else " ".join(names) or "none"


def _grant_detail(holder: Holder) -> str:
    parts = [holder.detail] if holder.detail else []
    if holder.allow is not None:
        parts.append(f"allows only {', '.join(holder.allow)}")
    if holder.holds and holder.denied_by:
        parts.append(f"denied in part by {', '.join(map(_ref, holder.denied_by))}")
    if holder.token_needs_scope:
        parts.append("the token must carry it too")
    return "; ".join(parts)


@_question
@examples(Example("toolcrib access explain heist/hacker database_query", exit=1))
def explain(source: Source, out: Format, subject: Subject, tool: Tool, binding: Files = None) -> None:
    """Explain why a subject may or may not use a tool, step by step. Exit code 1: it may not."""
    answer = source.explain(subject, tool)
    if not _printed(answer, source, out):
        verdict = "yes" if answer.allowed else "no"
        asked = f"{answer.who.subject} {answer.action.value} {answer.tool_id}"
        output.line(f"{verdict}: {asked}: {answer.rule}", style="bold")
        steps = [(s.step, s.verdict, s.title, s.detail) for s in answer.steps]
        output.table(("step", "verdict", "what", "detail"), steps)
        if answer.bindings:
            output.heading("Bindings of this subject")
            rows = [
                (
                    _ref(b.binding),
                    b.binding.generation,
                    _VERDICTS.get(b.verdict, b.verdict),
                    b.reason.value if b.reason else "",
                    _words(b.rule, b.binding),
                )
                for b in answer.bindings
            ]
            output.table(("binding", "generation", "verdict", "reason", "rule"), rows)
        if answer.fallbacks:
            output.heading("Called while its backend is down")
            reviewed = [(t.tool_id, *_decided(t)) for t in answer.fallbacks]
            output.table(("tool", "allowed", "reason", "by", "generation", "rule"), reviewed)
    if not answer.allowed:
        raise typer.Exit(Exit.FAILED)


@_question
@examples(
    "toolcrib access diff -f examples/access/changes",
    "toolcrib access diff --delete AgentScopeBinding/heist/hacker",
)
def diff(
    source: Source,
    out: Format,
    binding: Annotated[
        list[Path] | None,
        typer.Option("--file", "-f", help="Manifests to add or change: files, folders or -. Repeatable."),
    ] = None,
    subject: Annotated[str | None, typer.Option("--subject", help=f"Only for this subject: {_WHOM}")] = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Treat Tools and bindings that are not in the files as deleted.")
    ] = False,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit with 1 if anything changes.")] = False,
) -> None:
    """List the tools that subjects would gain and lose by a change of manifests, before you apply it.

    For a pull request: `toolcrib access diff --manifests base/ -f head/ --prune --exit-code`.
    """
    if not source.question.bindings and not source.question.delete:
        raise CliError(
            "no change specified", hint="specify -f FILE or --delete Kind/namespace/name", code=Exit.USAGE
        )
    answer = source.diff(subject)
    if not _printed(answer, source, out):
        rows = [
            (_SIGNS[t.change], s.who.subject, t.tool_id, *_decided(t.after)[1:])
            for s in answer.subjects
            for t in s.tools
        ]
        output.table(("change", "subject", "tool", "reason", "by", "generation", "rule"), rows)
        found = f"{len(answer.subjects)} subject(s) affected."
        output.line(found if rows else "No subject affected.", stderr=True)
    if exit_code and answer.subjects:
        raise typer.Exit(Exit.FAILED)
    if exit_code and source.doubted:
        # anyone who merges by the exit code must not take a group of the real cluster for one without members
        raise CliError(
            f"the cluster's issuer is not known, and bindings name groups of service accounts of {', '.join(source.doubted)}",
            hint="specify --cluster-issuer https://…, exactly as in these bindings, or correct the bindings",
            code=Exit.USAGE,
        )


# "passes" would read like a step that is passed
_VERDICTS = {"passes": "grants nothing"}
_SIGNS = {"gained": "+ gained", "lost": "- lost", "changed": "~ changed"}
for _name, _command in (
    ("what-can", what_can),
    ("who-can", who_can),
    ("who-holds", who_holds),
    ("explain", explain),
    ("diff", diff),
):
    app.command(_name, epilog=epilog(_command))(_command)


def _decided(rule: Rule) -> tuple[str, str, str, str, str]:
    """Allowed, reason, object, generation, rule: what every line shows."""
    by = rule.binding
    return (
        "yes" if rule.allowed else "no",
        rule.reason.value,
        "-" if by is None else _ref(by),
        "-" if by is None else str(by.generation),
        _words(rule.rule, by),
    )


def _words(rule: str, binding: ReviewedBinding | None) -> str:
    """A rule beside the columns that name its object."""
    return rule if binding is None else rule.removeprefix(f"{binding.ref} (generation {binding.generation}) ")


def _ref(binding: ReviewedBinding) -> str:
    return f"{binding.ref}{' (proposed)' if binding.proposed else ''}"


def _printed(answer: Review, source: Source, out: Format) -> bool:
    """Print it as JSON or YAML if that is wanted; and in any case, apart from it, what has to be known beside it."""
    for item in source.not_used[:20]:
        message = f"{item.reason}: {item.message}" if item.message else item.reason
        output.line(f"not in effect: {item.ref}: {message}", stderr=True)
    if len(source.not_used) > 20:
        output.line(f"not in effect: {len(source.not_used) - 20} more", stderr=True)
    for text in answer.assumptions:
        output.line(f"assumed: {text}", stderr=True)
    for text in answer.notes:
        output.line(f"note: {text}", stderr=True)
    if out is Format.TABLE:
        return False
    output.data(answer.model_dump(mode="json"), out)
    return True
