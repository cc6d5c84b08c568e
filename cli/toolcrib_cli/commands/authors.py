"""For tool authors: call a tool that is not applied yet, and start a tool of one's own."""

from __future__ import annotations

import asyncio
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolcrib.text import escape
from toolcrib_cli import options, output
from toolcrib_cli.commands import call_arguments
from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.examples import examples
from toolcrib_cli.output import Format

if TYPE_CHECKING:
    from toolcrib_cli.local.one_call import OneCall, Place
    from toolcrib_cli.local.placing import Placing

_ORDINALS = {1: "1st", 2: "2nd", 3: "3rd"}


@examples("toolcrib try examples/heist/30-tool-calculator.yaml expression='6 * 7'")
def try_tool(
    file: Annotated[
        Path, typer.Argument(help="File with a Tool and the Secrets it needs. - is standard input.")
    ],
    arguments: Annotated[list[str] | None, typer.Argument(help="key=value, as for `toolcrib call`.")] = None,
    json_: Annotated[
        str | None, typer.Option("--json", help="All arguments as one JSON object. - reads standard input.")
    ] = None,
    tool: Annotated[
        str | None, typer.Option("--tool", help="Name of the Tool, if the file has several.")
    ] = None,
    beside: Annotated[
        list[Path] | None,
        typer.Option(
            "--manifests",
            exists=True,
            help="Further manifests to consider. Repeatable.",
            show_default="those of the running local mode",
        ),
    ] = None,
    backend: options.Backends = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="HOST[:PORT]", help="Host that the tool may call. Repeatable."),
    ] = None,
    as_: Annotated[
        str | None,
        typer.Option(
            "--as",
            help="Account in the call's assertion: namespace/name.",
            show_default="NAMESPACE/try",
        ),
    ] = None,
    namespace: options.DefaultNamespace = "default",
    search: Annotated[
        bool,
        typer.Option("--search/--no-search", help="Show how a search for its description ranks the tool."),
    ] = True,
    data: options.Data = None,
    out: options.Output = Format.TABLE,
) -> None:
    """Call a tool before you apply it: check the manifest, send the request, show both messages.

    It needs no grant and no local mode. If a local mode runs, its hosts and tools are used.
    """
    from toolcrib_cli import manifests
    from toolcrib_cli.local import accounts, one_call
    from toolcrib_cli.local.placing import placed
    from toolcrib_cli.local.store import read_running

    if file == manifests.STDIN and json_ == "-":
        raise CliError(
            "standard input can be the manifest or the arguments, not both",
            hint="put one of the two into a file, or give arguments as NAME=VALUE",
            code=Exit.USAGE,
        )
    folder = options.data_folder(data)
    state = read_running(folder)
    content = manifests.read(file, default_namespace=namespace)
    if content.problems:
        raise CliError(
            "\n".join(["the manifest is not valid", *(f"  {p}" for p in content.problems)]),
            hint="correct it, and check it with `toolcrib validate`",
        )
    named = beside or [Path(p) for p in (state or {}).get("manifests", ()) if Path(p).exists()]
    own = None if file == manifests.STDIN else file.resolve()
    others = [
        manifests.read(each, default_namespace=namespace)
        for each in manifests.files_in(named)
        if each.resolve() != own
    ]
    if broken := [each for each in others if each.problems]:
        names = ", ".join(str(each.file) for each in broken)
        output.line(f"left out, not valid: {names}", style="yellow", stderr=True)
    found = one_call.assessed(content, [each for each in others if not each.problems])
    chosen = one_call.chosen(content, found, tool)
    given = call_arguments.read(arguments or [], json_, call_arguments.texts(chosen.input_schema))
    account = as_ if as_ and "/" in as_ else f"{chosen.namespace}/{as_ or 'try'}"
    caller = ":".join(("system:serviceaccount", *accounts.find(folder, account)))
    place = _place(folder, state, backend or [], allow_host or [])
    done = asyncio.run(one_call.call(chosen, given, found.credentials, place, caller))
    if done.error is not None and (why := found.credential_missing.get(chosen.tool_id)):
        done.notes.append(f"{why} (Secrets are read from {file} and from --manifests)")
    where = None
    if search:
        rest = [t for i, t in found.tools.items() if i != chosen.tool_id]
        where = asyncio.run(placed(chosen, rest, folder, (state or {}).get("embedder", "packaged")))
    if out is Format.TABLE:
        _print(chosen.tool_id, caller, done, where)
    else:
        output.data(_plain(chosen.tool_id, caller, done, where), out)
    if done.error is not None:
        raise typer.Exit(Exit.FAILED)


def _place(folder: Path, state: dict[str, Any] | None, backends: list[str], allow: list[str]) -> Place:
    from toolcrib_cli.commands import services
    from toolcrib_cli.local.hosts import FILE, Hosts, HostsFile, HostsInvalid
    from toolcrib_cli.local.one_call import Place

    given = Hosts(services.allowed(allow), services.backends_of(backends))
    keys = folder / "assertion"
    own = keys if keys.is_dir() else None
    if state is not None:
        egress = state.get("settings", {}).get("egress", {})
        running = Hosts(tuple(egress.get("allow", ())), dict(state.get("backends", {})))
        forbidden = tuple(egress.get("forbidden", ()))
        return Place(given.over(running), str(state["url"]), forbidden, own, serve_keys=False)
    file = HostsFile(folder / FILE)
    try:
        file.look()
    except HostsInvalid as error:
        raise CliError(str(error), code=Exit.USAGE) from error
    return Place(given.over(file.hosts), f"http://127.0.0.1:{options.DEFAULT_PORT}", keys=own)


def _print(tool_id: str, caller: str, done: OneCall, where: Placing | None) -> None:
    if (request := done.request) is not None:
        output.line(f"request of {tool_id}, for {caller}", style="bold")
        output.line(f"  {request['method']} {request['url']}")
        for name, value in request["headers"].items():
            output.line(f"  {name}: {value}")
        if request["body"] is not None:
            output.data(request["body"], Format.JSON)
    for note in done.notes:
        output.line(f"note: {note}", style="yellow", stderr=True)
    if (error := done.error) is not None:
        answered = f" (the backend answered {done.status})" if done.status is not None else ""
        output.line(f"error: {error.code}: {error.detail}{answered}", style="bold red", stderr=True)
        for item in error.extra.get("errors") or ():
            about = f"{item['pointer']}: " if item["pointer"] else ""
            output.line(f"  {about}{item['message']}", stderr=True)
        if (said := error.extra.get("upstream")) is not None:
            output.line(f"  the tool says: {said}", stderr=True)
    else:
        kind = f", {done.media_type}" if done.media_type else ""
        output.line(f"response: {done.status} in {done.seconds * 1000:.0f} ms{kind}", style="bold")
        if isinstance(done.result, str):
            sys.stdout.write(escape(done.result, keep_newlines=True) + "\n")
        else:
            output.data(done.result, Format.JSON)
    if where is not None:
        output.line(_ranked(where))


def _ranked(where: Placing) -> str:
    """Where a search finds the tool, in a sentence."""
    if where.place is None:
        place = "not among the first 100"
    else:
        place = _ORDINALS.get(where.place, f"{where.place}th")
        place += "" if where.confidence is None else f", confidence {where.confidence:.2f}"
    before = [hit.tool_id for hit in where.best[: (where.place or len(where.best) + 1) - 1]]
    ahead = f"; before it: {', '.join(before)}" if before else ""
    return f"search for its description ({where.mode}) among {where.among} tool(s): {place}{ahead}"


def _plain(tool_id: str, caller: str, done: OneCall, where: Placing | None) -> dict[str, Any]:
    error = done.error
    return {
        "tool_id": tool_id,
        "caller": caller,
        "request": done.request,
        "response": None
        if error is not None
        else {
            "status": done.status,
            "media_type": done.media_type,
            "seconds": round(done.seconds, 4),
            "result": done.result,
        },
        "error": None
        if error is None
        else {"code": error.code, "detail": error.detail, "status": done.status, **error.extra},
        "notes": done.notes,
        "search": None
        if where is None
        else {
            "place": where.place,
            "confidence": where.confidence,
            "among": where.among,
            "mode": where.mode,
            "best": [{"tool_id": hit.tool_id, "confidence": hit.confidence} for hit in where.best],
        },
    }


@examples("toolcrib init greetings")
def init(
    folder: Annotated[Path, typer.Argument(help="Folder to write. Existing files are never changed.")],
    namespace: Annotated[
        str | None,
        typer.Option(
            "-n", "--namespace", help="Namespace of the manifests.", show_default="the folder's name"
        ),
    ] = None,
) -> None:
    """Create a tool to start from: manifests, a small service, and a README."""
    from toolcrib_cli.local import starter

    given, files = starter.write(folder, namespace)
    for file in files:
        output.line(f"wrote {file}")
    output.heading("What to try next")
    service, tool, whole = (
        shlex.quote(str(path)) for path in (folder / "service.py", folder / "tool.yaml", folder)
    )
    for command in (
        f"python {service}    # in a second shell",
        f"toolcrib try {tool} name=Ada --backend {given}/greetings=127.0.0.1:9000",
        f"toolcrib up --manifests {whole} --backend {given}/greetings=127.0.0.1:9000",
    ):
        output.line(f"  {command}")
