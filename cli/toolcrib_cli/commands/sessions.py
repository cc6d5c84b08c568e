"""`toolcrib session run`, `resume` and `pause`: several agents that work in turns."""

from __future__ import annotations

import contextlib
import re
import secrets
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.text import truncate
from toolcrib_cli import options, output
from toolcrib_cli.commands import sessions_view
from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.examples import Example, examples
from toolcrib_cli.output import Format

if TYPE_CHECKING:
    from toolcrib_cli.local.listener import LocalRegistry
    from toolcrib_cli.session_store.records import Records
    from toolcrib_cli.session_store.rows import Session, Turn
    from toolcrib_cli.sessions.definition import Agent, Definition
    from toolcrib_cli.sessions.preflight import Preflight

_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""What the registry takes for a session's id."""
_FIRST = 160
"""Characters of an answer that the progress shows."""

Ident = Annotated[
    str | None,
    typer.Option(
        "--id", help="Id of the new session.", show_default="the session's name, date and six digits"
    ),
]


@examples(Example("toolcrib session run examples/heist/session.yaml --id heist-1", lines=16))
def run(
    file: Annotated[Path, typer.Argument(help="The session's file: docs/reference/sessions.md.")],
    ident: Ident = None,
    store: sessions_view.Store = None,
    url: options.Url = None,
    data: options.Data = None,
    ca_file: options.CaFile = None,
    out: options.Output = Format.TABLE,
) -> None:
    """Run a session: check its parts, show what each agent discovers, then let them work in turns.

    Each turn is written down. A session that ends early goes on with `toolcrib session resume`.
    """
    from toolcrib_cli.sessions import definition

    session = definition.read(file)
    name = (
        ident
        if ident is not None
        else f"{session.session.name}-{time.strftime('%Y%m%d', time.gmtime())}-{secrets.token_hex(3)}"
    )
    if not _ID.fullmatch(name):
        raise CliError(
            f"not an id of a session: {name}",
            hint="1 to 64 letters, digits, '.', '_' and '-'",
            code=Exit.USAGE,
        )
    with sessions_view.opened(store, data) as records:
        if records.find(name) is not None:
            raise _exists(name)
        _run(records, session, name, file.parent, None, url, data, ca_file, out)


@examples(
    Example("toolcrib session resume heist-1", exit=2),
)
def resume(
    ident: sessions_view.Which,
    files: Annotated[
        Path | None,
        typer.Option(
            "--files",
            help="Folder of the token and key files that the session names.",
            show_default="that of --compare, else the current folder",
        ),
    ] = None,
    compare: Annotated[
        Path | None,
        typer.Option("--compare", help="The session's file: resume only if the store holds the same."),
    ] = None,
    accept: Annotated[
        str | None,
        typer.Option(
            "--accept", metavar="DIGEST", help="Resume what the store holds, if this is its digest."
        ),
    ] = None,
    store: sessions_view.Store = None,
    url: options.Url = None,
    data: options.Data = None,
    ca_file: options.CaFile = None,
    out: options.Output = Format.TABLE,
) -> None:
    """Go on with a session after its last finished turn.

    A session whose run was killed is watched for six seconds first, so that no two run it. A call whose answer was lost is made
    again only if the tool is idempotent.

    The store says which accounts, models and key files a session uses. If it was not started on this machine, compare it with its
    file (--compare), or confirm what it uses.
    """
    from toolcrib_cli.session_store.rows import State
    from toolcrib_cli.sessions import definition

    with sessions_view.opened(store, data) as records:
        found = sessions_view.existing(records, ident)
        if found.state is State.FINISHED:
            raise CliError(
                f"{ident} is finished", hint=f"`toolcrib session show {ident}` shows it", code=Exit.USAGE
            )
        session = definition.stored(found.definition)
        _refuse_unknown(session, found, compare, accept, data)
        folder = files or (compare.parent if compare is not None else Path("."))
        _run(records, session, ident, folder, found, url, data, ca_file, out)


def _refuse_unknown(
    session: Definition, held: Session, compare: Path | None, accept: str | None, data: Path | None
) -> None:
    """Let a stored session through if it was started here, equals its file, or somebody accepts it."""
    from toolcrib_cli.sessions import acceptance, definition

    if compare is not None:
        if definition.read(compare) != session:
            raise CliError(
                f"{held.id} in the store is not the session of {compare}",
                hint=f"`toolcrib session show {held.id} -o json` shows its definition; start the file with `session run`",
                code=Exit.USAGE,
            )
        return
    is_digest = acceptance.digest(held.id, held.definition)
    if accept == is_digest:
        return
    if accept is None and acceptance.Acceptances(options.data_folder(data)).has(held.id, held.definition):
        return
    facts = acceptance.facts(session)
    if accept is None and sys.stdin.isatty():
        for line in (f"The store's {held.id} was not started on this machine. It says:", *facts):
            output.line(line, stderr=True)
        if typer.confirm("Resume it?", err=True):
            return
        raise typer.Exit(Exit.FAILED)
    problem = (
        f"the store's {held.id} was not started on this machine"
        if accept is None
        else f"the store's {held.id} has another digest"
    )
    raise CliError(
        "\n".join([f"{problem}. It says:", *facts]),
        hint=f"compare it with its file (--compare FILE), or accept this (--accept {is_digest})",
        code=Exit.USAGE,
    )


@examples(Example("toolcrib session pause heist-1", exit=2))
def pause(ident: sessions_view.Which, store: sessions_view.Store = None, data: options.Data = None) -> None:
    """Ask a running session to stop after the turn that runs now. One whose run was killed is paused at once.

    The run is watched for a sign of life, up to six seconds.
    """
    from toolcrib_cli.sessions import running

    with sessions_view.opened(store, data) as records:
        found = sessions_view.existing(records, ident)
        if not records.ask_pause(ident):
            raise CliError(
                f"{ident} does not run",
                hint="`toolcrib session list` shows which sessions run",
                code=Exit.USAGE,
            )
        paused = running.pause_abandoned(records, found, secrets.token_hex(8))
    if paused:
        output.line(
            f"Nobody runs {ident}: its run ended without a word. It is paused now; `toolcrib session resume {ident}` goes on."
        )
        return
    output.line(f"{ident} stops after its turn; `toolcrib session resume {ident}` goes on with it.")


def _run(
    records: Records, session: Definition, ident: str, folder: Path, resumed: Session | None, url: str | None,
    data: Path | None, ca_file: Path | None, out: Format,
) -> None:  # fmt: skip
    from toolcrib_cli.session_store.records import SessionExists, SessionForgotten, TakenOver
    from toolcrib_cli.session_store.rows import State
    from toolcrib_cli.sessions import acceptance, preflight, running, team

    accepted = acceptance.Acceptances(options.data_folder(data))
    text = session.as_json() if resumed is None else resumed.definition
    holder = secrets.token_hex(8)
    local = options.local_registry(any(agent.token_file is None for agent in session.agents), url, data)
    where = local.url() if local is not None else str(url).rstrip("/")
    told = _Progress(ident, session.turns, to_stderr=out is not Format.TABLE)
    with (
        _terminable(),
        team.composed(
            session, where, folder=folder, mint=lambda account: _Minted(account, data, local), ca_file=ca_file
        ) as made,
    ):
        if any(session.model_of(agent).url is None for agent in session.agents):
            told.line(
                "The scripted model answers for agents whose model has no URL. It is no language model."
            )
        found = preflight.run(made)
        told.checked(found)
        if found.missing:
            raise CliError(
                "the session does not begin: "
                + "; ".join(f"{c.part} {c.of}: {c.problem}" for c in found.missing),
                hint="start what is down, or mark it `degrade` under `needs` if the session can do without",
                code=Exit.UNREACHABLE,
            )
        if problem := accepted.add(ident, text):
            told.line(
                f"A resume will have to be confirmed, since this start is not noted: {problem}", "yellow"
            )
        try:
            if resumed is None:
                facts = session.session
                records.create(
                    ident, facts.name, text, holder=holder, keeps=facts.messages.value == "keep",
                    retention=session.retention_seconds,
                )  # fmt: skip
            elif not _taken(records, resumed, holder, told):
                raise CliError(
                    f"{ident} is run by another process",
                    hint=f"`toolcrib session pause {ident}` asks it to stop after its turn",
                )
            records.discovered(ident, holder, found.views)
            with_memory = session.needs.memory is not None and not any(
                check.part == "memory" for check in found.degraded
            )
            state = running.Run(records, made, ident, holder, told.turn, with_memory=with_memory).until_done()
        except SessionExists:
            raise _exists(ident) from None
        except SessionForgotten:
            raise CliError(
                f"there was a session {ident}, and its retention is over",
                hint="use another --id: decision logs still name that one",
                code=Exit.USAGE,
            ) from None
        except TakenOver:
            raise CliError(
                f"another process has resumed {ident}; this one ends without writing",
                hint=f"`toolcrib session show {ident}` shows how it goes on",
            ) from None
    if state is State.FINISHED:
        accepted.remove(ident, text)
    if out is not Format.TABLE:
        output.data(sessions_view.account_of(records, ident), out)
        return
    turns = records.turns(ident)
    failed = sum(turn.outcome != "answered" for turn in turns)
    calls = len(records.calls(ident))
    if state is State.PAUSED:
        output.line(
            f"{ident} is paused after {len(turns)} of {session.turns} turns; `toolcrib session resume {ident}` goes on."
        )
        return
    output.line(
        f"{ident} is finished: {len(turns)} turns, {failed} of them without an answer, {calls} calls. "
        f"`toolcrib session show {ident}` shows it."
    )


def _exists(ident: str) -> CliError:
    return CliError(
        f"there is a session {ident} already",
        hint=f"`toolcrib session resume {ident}` goes on with it",
        code=Exit.USAGE,
    )


def _taken(records: Records, resumed: Session, holder: str, told: _Progress) -> bool:
    from toolcrib_cli.sessions import running

    if resumed.holder is not None:
        told.line(f"Watching for {running.STILL:g} s whether another process runs it.")
    return running.take_over(records, resumed, holder)


class _Minted:
    """Tokens of the local mode's issuer for an account, for its registry alone."""

    def __init__(self, account: str, data: Path | None, local: LocalRegistry | None) -> None:
        self._tokens = options.tokens(account, None, data)
        self.greet = None if local is None else local.greet

    def __call__(self) -> str:
        from toolcrib_runner.errors import TokenUnavailable

        try:
            return self._tokens.current()
        except CliError as error:
            raise TokenUnavailable(
                f"{error.message}; start `toolcrib up`, or name a tokenFile for the agent"
            ) from error


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends a session as Ctrl-C does: paused, so that it can be resumed at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Progress:
    """What is told while a session runs."""

    def __init__(self, ident: str, turns: int, *, to_stderr: bool) -> None:
        self._ident = ident
        self._turns = turns
        self._to_stderr = to_stderr

    def line(self, text: str, style: str = "") -> None:
        """One line."""
        output.line(text, style=style, stderr=self._to_stderr)

    def checked(self, found: Preflight) -> None:
        """What was checked, and who has discovered what."""
        self.line(f"Session {self._ident}", style="bold")
        said = (
            f"  {c.part} {c.of}: " + (f"{c.need}: {c.problem}" if c.problem else "ok") for c in found.checks
        )
        for line in dict.fromkeys(said):  # every agent has found the same of the registry
            self.line(line)
        for view in found.views:
            tools = ", ".join(f"{name} ({' '.join(scopes)})" for name, scopes in view.tools.items())
            self.line(f"  {view.agent} as {view.account}: {tools or 'no tools'}")

    def turn(self, number: int, agent: Agent, ended: Turn | None) -> None:
        """A turn begins or has ended."""
        if ended is None:
            self.line(f"Turn {number}/{self._turns} {agent.name} …")
            return
        tokens = ended.prompt_tokens + ended.completion_tokens
        why = f" ({ended.error})" if ended.error else ""
        self.line(f"  {ended.outcome}{why}: {ended.replies} replies, {tokens} tokens, {ended.seconds:.1f} s")
        if ended.answer:
            self.line(f"  {truncate(' '.join(ended.answer.split()), _FIRST)}")
