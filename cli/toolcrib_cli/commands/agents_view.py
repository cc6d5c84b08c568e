"""What an agent sees and does, from the command line: tools, search, call, token."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolcrib.text import escape
from toolcrib.wire.advice import ADVISED_MIN_SCORE
from toolcrib_cli import options, output
from toolcrib_cli.commands import call_arguments, completion
from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.examples import Example, examples
from toolcrib_cli.output import Format

if TYPE_CHECKING:
    from toolcrib_cli.client import RegistryClient

_PAGES = 10
"""Of 200 tools: so far a misspelt name is looked for."""
ToolName = Annotated[
    str,
    typer.Argument(help="The tool's name or id (namespace/name).", autocompletion=completion.visible_tools),
]


class SearchMode(StrEnum):
    """How a search ranks."""

    HYBRID = "hybrid"
    LEXICAL = "lexical"
    DENSE = "dense"
    COMPAT = "compat"


def _client(
    url: str | None, as_: str | None, token_file: Path | None, data: Path | None, ca_file: Path | None
) -> RegistryClient:
    return options.registry_client(url, as_, token_file, data, ca_file)


@examples(
    "toolcrib tools --as safecracker",
    Example(
        "toolcrib tools --url https://toolcrib.example.com --token-file token",
        not_run="needs a registry and a token of yours",
    ),
)
def tools(
    as_: options.As = None,
    url: options.Url = None,
    data: options.Data = None,
    token_file: options.TokenFile = None,
    ca_file: options.CaFile = None,
    out: options.Output = Format.TABLE,
) -> None:
    """List the tools that an agent may see now."""
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    with _client(url, as_, token_file, data, ca_file) as client:
        while True:
            page = client.get("/v1/tools", limit=200, cursor=cursor)
            found += page["tools"]
            cursor = page.get("next_cursor")
            if not cursor:
                break
    if out is not Format.TABLE:
        output.data(found, out)
        return
    output.table(
        ("tool", "name", "server", "scopes", "description"),
        [
            (
                t["tool_id"],
                t["name"],
                t.get("server") or "",
                " ".join(t["scopes"]),
                output.short(_line(t), 80),
            )
            for t in found
        ],
    )
    if not found:
        output.line(
            "No tools are visible to this identity. `toolcrib access what-can NAMESPACE/NAME --hidden` shows why.",
            stderr=True,
        )


def _line(tool: dict[str, Any]) -> str:
    return " ".join(str(tool.get("description") or "").split())


@examples(
    'toolcrib search "simulate the drill" --as hacker',
    'toolcrib search "guard schedule" --as hacker --limit 1 --why',
)
def search(
    query: Annotated[
        str,
        typer.Argument(help="What the tool should do, in your own words. Optional with a filter."),
    ] = "",
    as_: options.As = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=100, help="Maximum number of hits.")] = 10,
    tag: Annotated[
        list[str] | None, typer.Option("--tag", help="Only tools with this tag. Repeatable.")
    ] = None,
    server: Annotated[
        list[str] | None, typer.Option("--server", help="Only tools of this server. Repeatable.")
    ] = None,
    namespace: Annotated[
        list[str] | None,
        typer.Option(
            "--namespace",
            help="Only tools in this namespace. Repeatable.",
            autocompletion=completion.visible_namespaces,
        ),
    ] = None,
    mode: Annotated[
        SearchMode,
        typer.Option("--mode", help="Ranking method. compat: cosine similarity plus fixed boosts."),
    ] = SearchMode.HYBRID,
    min_score: Annotated[
        float | None,
        typer.Option(
            "--min-score",
            min=0,
            max=1,
            help="Minimum confidence. 0 shows every hit. With 15 tools or fewer, use at most "
            f"{ADVISED_MIN_SCORE:g}: higher values hide tools that fit.",
        ),
    ] = None,
    top_servers: Annotated[
        int | None,
        typer.Option(
            "--top-servers",
            min=1,
            max=100,
            help="Rank servers first, then only the tools of this many servers.",
        ),
    ] = None,
    why: Annotated[bool, typer.Option("--why", help="Show why each tool was found.")] = False,
    url: options.Url = None,
    data: options.Data = None,
    token_file: options.TokenFile = None,
    ca_file: options.CaFile = None,
    out: options.Output = Format.TABLE,
) -> None:
    """Find tools by meaning, among those that an agent may see."""
    filters = {"tags": tag, "servers": server, "namespaces": namespace}
    if not query.strip() and not any(filters.values()):
        raise CliError(
            "neither a query nor a filter specified",
            hint='describe the tool (`toolcrib search "read a file"`), or add --tag, --server or --namespace',
            code=Exit.USAGE,
        )
    body: dict[str, Any] = {"query": query, "limit": limit, "search_mode": mode.value}
    body |= {name: given for name, given in filters.items() if given}
    numbers = {"min_score": min_score, "top_k_servers": top_servers}
    body |= {name: given for name, given in numbers.items() if given is not None}
    with _client(url, as_, token_file, data, ca_file) as client:
        answer = client.post("/v1/search", body)
    if out is not Format.TABLE:
        output.data(answer, out)
        return
    rows = [
        (f"{hit['confidence']:.2f}" if hit.get("confidence") is not None else "-", hit["tool_id"], hit["name"],
         hit.get("server") or "",
         output.short(hit.get("why") or "", 120) if why else output.short(" ".join(hit["short_desc"].split()), 80))
        for hit in answer["tools"]
    ]  # fmt: skip
    output.table(("confidence", "tool", "name", "server", "why" if why else "description"), rows)
    down = [hit["tool_id"] for hit in answer["tools"] if hit.get("unavailable")]
    if down:
        output.line(f"The backend is down: {', '.join(down)}.", stderr=True)
    if answer["search_mode"] != mode.value:
        reason = f" ({answer['degradation']})" if answer.get("degradation") else ""
        output.line(f"Search mode: {answer['search_mode']}{reason}.", stderr=True)
    if not rows:
        output.line(_nothing(bool(query.strip()), any(filters.values()), min_score), stderr=True)


def _nothing(words: bool, filtered: bool, min_score: float | None) -> str:
    """What to say where there is no hit, and what would bring some."""
    if not words:
        return "No tool matches the filters."
    hint = "--min-score 0 shows the nearest tools" if min_score is None else ""
    if filtered:
        hint = f"{hint}, if any tool matches the filters" if hint else "Perhaps no tool matches the filters"
    if min_score:
        hint = f"Hits below --min-score {min_score:g} are omitted: lower it, or omit it"
    return f"No tool found. {hint}." if hint else "No tool found."


@contextmanager
def _suggesting(client: RegistryClient, tool: str) -> Iterator[None]:
    """Where there is no such tool for this identity, the hint names one of its own that may be meant."""
    try:
        yield
    except CliError as error:
        if error.problem in ("not_permitted", "tool_not_found"):
            error.hint = _meant(client, tool) or error.hint
        raise


def _meant(client: RegistryClient, *wanted: str) -> str:
    """A hint with the tools of this identity's own view that are written much alike; empty where none is."""
    from toolcrib.resources.mistakes import nearest

    known: list[str] = []
    cursor: str | None = None
    try:
        for _ in range(_PAGES):
            page = client.get("/v1/tools", limit=200, cursor=cursor)
            known += (name for t in page["tools"] for name in dict.fromkeys((t["name"], t["tool_id"])))
            if not (cursor := page.get("next_cursor")):
                break
    except CliError:
        return ""
    found = dict.fromkeys(nearest(each, known, 0.7) for each in wanted if each not in known)
    close = [name for name in found if name is not None]
    return f"did you mean {' or '.join(close)}?" if close else ""


@examples(Example("toolcrib describe calculator --as safecracker", lines=9))
def describe(
    tool: ToolName,
    as_: options.As = None,
    url: options.Url = None,
    data: options.Data = None,
    token_file: options.TokenFile = None,
    ca_file: options.CaFile = None,
    out: options.Output = Format.TABLE,
) -> None:
    """Show one tool: what it does, and the schema of its arguments."""
    with _client(url, as_, token_file, data, ca_file) as client, _suggesting(client, tool):
        found = client.post("/v1/describe", {"tool": tool})
    if out is not Format.TABLE:
        output.data(found, out)
        return
    for name in ("tool_id", "name", "server", "scopes", "tags", "description", "returns"):
        value = found.get(name)
        if value not in (None, "", []):
            shown = " ".join(value) if isinstance(value, list) else value
            output.line(f"{name.replace('_', ' ')}: {shown}")
    output.line("input schema:")
    output.data(found["input_schema"], Format.JSON)


@examples(
    "toolcrib load file_reader simulation_data --as hacker -o table",
    Example("toolcrib load calculator --as safecracker", lines=6),
)
def load(
    names: Annotated[
        list[str],
        typer.Argument(help="Names or ids of tools.", autocompletion=completion.visible_tools),
    ],
    as_: options.As = None,
    url: options.Url = None,
    data: options.Data = None,
    token_file: options.TokenFile = None,
    ca_file: options.CaFile = None,
    out: options.Output = Format.JSON,
) -> None:
    """Print the definitions of several tools as MCP defines them. Exit code 4: one is not available."""
    with _client(url, as_, token_file, data, ca_file) as client:
        found = client.post("/v1/load", {"tools": names})
        if missing := found.get("errors"):
            said = "; ".join(f"{each['tool']}: {each['detail']}" for each in missing)
            hint = _meant(client, *(each["tool"] for each in missing))
            raise CliError(
                said, hint=hint or "list the available tools with `toolcrib tools`", code=Exit.NOT_PERMITTED
            )
    if out is Format.TABLE:
        rows = [
            (t["_meta"]["toolcrib.dev/model-name"], t["name"], output.short(_line(t), 80))
            for t in found["tools"]
        ]
        output.table(("for models", "name", "description"), rows)
        return
    output.data(found["tools"], out)


@examples(
    "toolcrib call calculator expression='310 / 4.5' --as safecracker",
    Example("toolcrib call database_query query='SELECT * FROM cameras' --as safecracker", exit=4),
)
def call(
    tool: ToolName,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            help="key=value. The value is JSON, or else text; it is text if the tool expects text."
        ),
    ] = None,
    json_: Annotated[
        str | None, typer.Option("--json", help="All arguments as one JSON object. - reads standard input.")
    ] = None,
    as_: options.As = None,
    url: options.Url = None,
    data: options.Data = None,
    token_file: options.TokenFile = None,
    ca_file: options.CaFile = None,
    out: options.Output = Format.TABLE,
) -> None:
    """Call a tool through the registry."""
    with _client(url, as_, token_file, data, ca_file) as client, _suggesting(client, tool):
        texts = _texts(client, tool, arguments or [])
        read = call_arguments.read(arguments or [], json_, texts)
        answer = client.post("/v1/call", {"tool": tool, "arguments": read})
    if out is not Format.TABLE:
        output.data(answer, out)
        return
    if asked := answer.get("fallback_for"):
        output.line(
            f"The backend of {asked} is down. Its fallback {answer['tool_id']} answered.", stderr=True
        )
    result = answer["result"]
    if isinstance(result, str):
        sys.stdout.write(escape(result, keep_newlines=True) + "\n")
    else:
        output.data(result, Format.JSON)


def _texts(client: RegistryClient, tool: str, pairs: list[str]) -> frozenset[str]:
    """The arguments that the tool's schema takes as text, where one of `pairs` could be read as something else."""
    if not call_arguments.ambiguous(pairs):
        return frozenset()
    try:
        return call_arguments.texts(client.post("/v1/describe", {"tool": tool})["input_schema"])
    except CliError:
        return frozenset()  # the call itself says what is wrong


@examples(
    "toolcrib token safecracker",
    "toolcrib token hacker --ttl 7d --scopes 'file_reader:use simulation:read'",
)
def token(
    name: Annotated[
        str,
        typer.Argument(
            help="Service account: namespace/name, or a name that is unique.", autocompletion=options.agents
        ),
    ],
    scopes: Annotated[
        str | None,
        typer.Option(
            "--scopes", help='Scopes of the token ("a b"), which decide alone. Default: bindings decide.'
        ),
    ] = None,
    ttl: Annotated[str, typer.Option("--ttl", help="Lifetime: 90s, 30m, 1h, 7d.")] = "1h",
    client_secret: Annotated[
        bool,
        typer.Option(
            "--client-secret", help="Print the account's client secret for POST /oauth/token instead."
        ),
    ] = False,
    data: options.Data = None,
) -> None:
    """Print a bearer token of the local mode."""
    from toolcrib.resources import durations
    from toolcrib_cli.local import accounts

    if client_secret:
        sys.stdout.write(accounts.client_secret(options.data_folder(data), name) + "\n")
        return
    try:
        # manifests know no days: a duration there is one of a call
        days = ttl.removesuffix("d")
        seconds = float(days) * 86_400 if days.isdecimal() and days != ttl else durations.seconds(ttl)
    except ValueError as error:
        raise CliError(f"--ttl: {error}, or 7d", code=Exit.USAGE) from error
    sys.stdout.write(accounts.mint(options.data_folder(data), name, scopes=scopes, ttl=seconds) + "\n")
