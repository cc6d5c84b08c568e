"""`toolcrib session list`, `show`, `tools`, `compare`, `export` and `top`: what sessions came to."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolcrib_cli import options, output
from toolcrib_cli.commands import completion
from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.examples import Example, examples
from toolcrib_cli.output import Format

if TYPE_CHECKING:
    from toolcrib_cli.session_store.records import Records
    from toolcrib_cli.session_store.rows import Session, Turn
    from toolcrib_cli.sessions.comparison import Account, Mean, Share

_TOP = 20
"""Sessions that `top` shows."""
Store = Annotated[
    str | None,
    typer.Option(
        "--store",
        envvar="TOOLCRIB_SESSION_STORE",
        help="URL of the store: postgresql://USER@HOST/DATABASE, or sqlite:///FILE. The password is read from PGPASSWORD "
        "or a .pgpass file.",
        show_default="a file of the data folder",
    ),
]


def _idents(ctx: typer.Context, incomplete: str) -> list[str]:
    def read() -> list[str]:
        with opened(ctx.params.get("store"), ctx.params.get("data")) as records:
            return [session.id for session in records.sessions()]

    return [ident for ident in completion.within(read) if ident.startswith(incomplete)]


Which = Annotated[str, typer.Argument(metavar="SESSION", help="The session's id.", autocompletion=_idents)]


@contextmanager
def opened(store: str | None, data: Path | None) -> Iterator[Records]:
    """The store that the options name, without the sessions whose retention is over.

    Raises:
        CliError: it cannot be used, also where that shows later.
    """
    from toolcrib_cli.session_store.database import Database, StoreError, has_password
    from toolcrib_cli.session_store.records import Records

    if store is not None and has_password(store):
        raise CliError(
            "the store's URL holds a password, which other users of this machine can read",
            hint="omit it, and set PGPASSWORD or write a .pgpass file",
            code=Exit.USAGE,
        )
    try:
        with (
            Database.in_folder(options.data_folder(data)) if store is None else Database.at(store) as database
        ):
            records = Records(database)
            records.forget_expired()
            yield records
    except StoreError as error:
        raise CliError(error.message, hint=error.hint, code=Exit.UNREACHABLE) from error


def existing(records: Records, ident: str) -> Session:
    """The session of this id.

    Raises:
        CliError: there is none.
    """
    found = records.find(ident)
    if found is None:
        from toolcrib.resources import mistakes

        known = [session.id for session in records.sessions()]
        meant = mistakes.nearest(ident, known)
        hint = f"did you mean {meant}?" if meant else "`toolcrib session list` lists sessions"
        raise CliError(f"no session is called {ident}", hint=hint, code=Exit.USAGE)
    return found


@examples("toolcrib session list")
def list_(
    name: Annotated[str | None, typer.Option("--name", help="Only sessions of this name.")] = None,
    store: Store = None,
    data: options.Data = None,
    out: options.Output = Format.TABLE,
) -> None:
    """List sessions, the latest first."""
    with opened(store, data) as records:
        found = records.sessions(name=name)
        if out is not Format.TABLE:
            output.data([_facts(session) for session in found], out)
            return
        rows = [_row(records, session) for session in found]
    output.table(("session", "state", "turns", "failed", "calls", "began"), rows)
    if not rows:
        output.line("No sessions. `toolcrib session run FILE` starts one.", stderr=True)


def _row(records: Records, session: Session) -> tuple[object, ...]:
    turns = [turn for turn in records.turns(session.id) if turn.outcome not in ("running", "interrupted")]
    return (
        session.id,
        session.state.value + (f" ({session.reason})" if session.reason else ""),
        f"{len(turns)}/{_planned(session)}",
        sum(turn.outcome != "answered" for turn in turns),
        len(records.calls(session.id)),
        _time(session.created_at),
    )


def _planned(session: Session) -> int:
    from toolcrib_cli.sessions import definition

    return definition.stored(session.definition).turns


@examples(Example("toolcrib session show heist-1", lines=8))
def show(
    ident: Which, store: Store = None, data: options.Data = None, out: options.Output = Format.TABLE
) -> None:
    """Show a session turn by turn, with its calls, and with its messages where they are kept."""
    with opened(store, data) as records:
        found = existing(records, ident)
        if out is not Format.TABLE:
            output.data(account_of(records, ident), out)
            return
        turns, calls = records.turns(ident), records.calls(ident)
        row = _row(records, found)
    output.line(f"{ident}: {row[1]}, {row[2]} turns, began {row[5]}", style="bold")
    made: dict[int, Counter[str]] = {}
    for call in calls:
        said = call.tool if call.outcome == "ok" else f"{call.tool} ({call.outcome})"
        made.setdefault(call.turn, Counter())[said] += 1
    output.table(
        ("turn", "agent", "outcome", "calls", "replies", "tokens", "seconds"),
        [
            (
                turn.number,
                turn.agent,
                turn.outcome,
                ", ".join(f"{what} ×{n}" if n > 1 else what for what, n in made.get(turn.number, {}).items())
                or "-",
                turn.replies,
                turn.prompt_tokens + turn.completion_tokens,
                f"{turn.seconds:.1f}",
            )
            for turn in turns
        ],
    )
    for turn in turns:
        if said := turn.answer or turn.error:
            output.line(f"{turn.number} {turn.agent}: {output.short(' '.join(said.split()), 400)}")
    if not found.keeps_messages:
        output.line("Messages are not kept: `session.messages: keep` keeps them.", stderr=True)


@examples("toolcrib session tools heist-1")
def tools(
    ident: Which, store: Store = None, data: options.Data = None, out: options.Output = Format.TABLE
) -> None:
    """Show what each agent of a session had, with scopes, how often it was called, and how often over all sessions."""
    with opened(store, data) as records:
        existing(records, ident)
        calls = Counter((call.agent, call.tool) for call in records.calls(ident))
        rows: list[dict[str, Any]] = [
            {
                "agent": view.agent,
                "account": view.account,
                "tool": tool,
                "scopes": list(scopes),
                "calls": calls[view.agent, tool],
                "ever": uses.get(tool, 0),
            }
            for view in records.views(ident)
            for uses in (records.uses(view.account),)
            for tool, scopes in view.tools.items()
        ]
    if out is not Format.TABLE:
        output.data(rows, out)
        return
    output.table(
        ("agent", "account", "tool", "scopes", "calls", "ever"),
        [(r["agent"], r["account"], r["tool"], " ".join(r["scopes"]), r["calls"], r["ever"]) for r in rows],
    )


@examples("toolcrib session compare")
def compare(
    idents: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SESSION…]", help="Ids. Default: all.", autocompletion=_idents),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Only sessions of this name.")] = None,
    store: Store = None,
    data: options.Data = None,
    out: options.Output = Format.TABLE,
) -> None:
    """Compare sessions by the sets of tools that their agents had: calls, success, replies and tokens, with 95 % intervals."""
    from toolcrib_cli.sessions import comparison

    with opened(store, data) as records:
        chosen = [existing(records, each) for each in idents or ()] or records.sessions(name=name)
        rows = comparison.compare([_account(records, session) for session in chosen])
    if out is not Format.TABLE:
        output.data([asdict(row) for row in rows], out)
        return
    output.table(
        (
            "tool set",
            "tools",
            "sessions",
            "calls a turn",
            "calls ok",
            "turns answered",
            "replies a turn",
            "tokens a turn",
        ),
        [
            (
                row.tool_set,
                len(row.tools),
                row.sessions,
                _mean(row.calls),
                _share(row.succeeded),
                _share(row.answered),
                _mean(row.replies),
                _mean(row.tokens),
            )
            for row in rows
        ],
    )


def _mean(mean: Mean) -> str:
    if mean.low is None or mean.high is None:
        return f"{mean.value:.1f}"
    return f"{mean.value:.1f} [{mean.low:.1f}, {mean.high:.1f}]"


def _share(share: Share) -> str:
    if not share.of:
        return "-"
    return f"{share.hits}/{share.of} [{share.low:.0%}, {share.high:.0%}]"


@examples("toolcrib session export heist-1 | tail -1")
def export(
    ident: Which,
    to: Annotated[
        Path | None, typer.Option("--to", help="File to write.", show_default="standard output")
    ] = None,
    store: Store = None,
    data: options.Data = None,
) -> None:
    """Write a session as JSON Lines: the session, then its views, turns and calls, each with its `type`."""
    with opened(store, data) as records:
        account = account_of(records, ident)
    parts = [("session", account["session"])]
    parts += [(kind, each) for kind in ("view", "turn", "call") for each in account[f"{kind}s"]]
    lines = "".join(json.dumps({"type": kind} | each) + "\n" for kind, each in parts)
    if to is None:
        sys.stdout.write(lines)
        return
    try:
        to.touch(mode=0o600)
        to.write_text(lines, encoding="utf-8")
    except OSError as error:
        raise CliError(f"cannot write {to}: {error.strerror}", code=Exit.USAGE) from error


@examples("toolcrib session top --once")
def top(
    once: Annotated[bool, typer.Option("--once", help="Print once instead of every second.")] = False,
    store: Store = None,
    data: options.Data = None,
) -> None:
    """Watch sessions live, those that run first: whose turn it is, calls, errors, denials and tokens by agent."""
    from toolcrib_cli.sessions import activity

    columns = ("session", "state", "agent", "turn", "calls", "errors", "denials", "new tools", "tokens")
    with opened(store, data) as records:
        while True:
            shown = records.sessions(most=_TOP, live_first=True)
            rows = [
                (session.id, session.state.value, *activity.cells(each))
                for session in shown
                for each in activity.of(_account(records, session))
            ]
            if not once and sys.stdout.isatty():
                output.console().clear()
            output.table(columns, rows)
            sys.stdout.flush()  # a pipe would wait for more
            if once:
                return
            time.sleep(1)


def account_of(records: Records, ident: str) -> dict[str, Any]:
    """All of a session, for JSON."""
    account = _account(records, existing(records, ident))
    return {
        "session": _facts(account.session),
        "views": [asdict(view) for view in account.views],
        "turns": [_turn(turn) for turn in account.turns],
        "calls": [asdict(call) for call in account.calls],
    }


def _account(records: Records, session: Session) -> Account:
    from toolcrib_cli.sessions.comparison import Account

    return Account(session, records.views(session.id), records.turns(session.id), records.calls(session.id))


def _facts(session: Session) -> dict[str, Any]:
    return {
        "id": session.id,
        "name": session.name,
        "state": session.state.value,
        "reason": session.reason or None,
        "keepsMessages": session.keeps_messages,
        "began": _time(session.created_at),
        "changed": _time(session.changed_at),
        "definition": json.loads(session.definition),
    }


def _turn(turn: Turn) -> dict[str, Any]:
    return {**asdict(turn), "started_at": _time(turn.started_at)}


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
