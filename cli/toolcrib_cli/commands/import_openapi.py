"""`toolcrib import openapi`: Tools for the operations of an OpenAPI document."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from toolcrib.names import DNS_LABEL, SERVER_NAME, is_reserved_scope
from toolcrib.text import escape, truncate
from toolcrib_cli import options, output, yaml_documents
from toolcrib_cli.commands.import_options import check
from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.examples import Example, examples

if TYPE_CHECKING:
    from toolcrib_cli.imports.openapi.importing import Result

MAX_BYTES = 32 << 20
"""Of a document; the largest that are known have 13 MB."""
_MAX_CONTAINERS = 2_000_000
"""Objects and lists of a JSON document: each takes far more memory than its two brackets."""
_LONG = 1 << 20
_SPLIT = "split the document, and import each part"
_HINT = "give an OpenAPI 3.0 or 3.1 document, JSON or YAML"


@examples(
    Example("toolcrib import openapi examples/imports/openapi.yaml --name rooms -n team-a", lines=48),
    Example(
        "toolcrib import openapi https://api.example.com/openapi.json --include 'GET /orders*' --scope orders:use",
        not_run="needs an API of yours with a document at that address",
    ),
)
def openapi(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE|URL", help="An OpenAPI 3.0 or 3.1 document, JSON or YAML. - is standard input."
        ),
    ],
    namespace: options.DefaultNamespace = "default",
    name: Annotated[
        str | None,
        typer.Option(
            "--name", help="Server of the Tools, and first part of their scopes.", show_default="the title"
        ),
    ] = None,
    url: Annotated[
        str | None, typer.Option("--url", help="Address of the API.", show_default="servers of the document")
    ] = None,
    service: Annotated[
        str | None,
        typer.Option("--service", metavar="NAME:PORT", help="Service of the API, in the Tools' namespace."),
    ] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            help="Scope that opens all tools. Repeatable.",
            show_default="NAME:TAG:read for GET, NAME:TAG:write for others; without tags the path's first segment",
        ),
    ] = None,
    include: Annotated[
        list[str] | None,
        typer.Option(
            "--include",
            metavar="GLOB",
            help="Import these alone: names, operationIds or 'METHOD /path'. Repeatable.",
        ),
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option("--exclude", metavar="GLOB", help="Leave these out. Repeatable.")
    ] = None,
) -> None:
    """Print a Tool for each operation of an API, to review and apply.

    A table on standard error counts the operations that were left out, by reason; comments in the output name each. The API is
    not called. Values of credentials are never printed: a comment describes the Secret to create.
    """
    from toolcrib_cli.imports.openapi import writing
    from toolcrib_cli.imports.openapi.documents import UnusableDocumentError
    from toolcrib_cli.imports.openapi.importing import Wanted, imported

    check(namespace, tuple(scope or ()))
    _check(name, url, service)
    content = _read(source)
    wanted = Wanted(
        namespace=namespace,
        name=name,
        scopes=tuple(scope or ()),
        include=tuple(include or ()),
        exclude=tuple(exclude or ()),
        url=url,
        service=_service(service),
        source=source if _is_url(source) else None,
    )
    try:
        with output.progress("operations") as progress:
            result = imported(content, wanted, progress)
    except UnusableDocumentError as error:
        raise CliError(f"{_shown(source)}: {error}", hint=error.hint or _HINT, code=Exit.USAGE) from error
    if result.manifests:
        sys.stdout.write("---\n".join(writing.documents(result, namespace)))
        sys.stdout.flush()
    _summary(result)
    if not result.manifests:
        raise CliError(
            "no operation became a Tool", hint="the table says why; see also --include and --exclude"
        )


def _check(name: str | None, url: str | None, service: str | None) -> None:
    if name is not None and (re.fullmatch(SERVER_NAME, name) is None or is_reserved_scope(f"{name}:")):
        raise CliError(
            f"--name {escape(name)} is not a server name",
            hint="use letters, digits and _.- , at most 63, and not registry",
            code=Exit.USAGE,
        )
    if url is not None and service is not None:
        raise CliError("specify either --url or --service", code=Exit.USAGE)
    if url is not None and not _is_url(url):
        raise CliError(
            "--url is not an http or https URL",
            hint="for example: --url https://api.example.com/v1",
            code=Exit.USAGE,
        )


def _service(given: str | None) -> tuple[str, int] | None:
    if given is None:
        return None
    name, _, port = given.partition(":")
    if re.fullmatch(DNS_LABEL, name) is None or not port.isdecimal() or not 1 <= int(port[:6]) <= 65_535:
        raise CliError(
            f"--service {escape(given)} is not NAME:PORT",
            hint="for example: --service orders:8080",
            code=Exit.USAGE,
        )
    return name, int(port)


def _is_url(source: str) -> bool:
    return re.match(r"(?i)https?://", source) is not None


def _shown(source: str) -> str:
    # what follows ? or # may be a secret
    return escape(re.split("[?#]", source)[0] if _is_url(source) else source)


def _read(source: str) -> Any:
    raw = _downloaded(source) if _is_url(source) else _bytes(source)
    shown = _shown(source)
    if len(raw) > _LONG:
        output.line(f"reading {len(raw) / 1e6:.1f} MB", style="dim", stderr=True)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CliError(f"{shown} is not UTF-8 (byte {error.start})", hint=_HINT, code=Exit.USAGE) from error
    is_json = text.lstrip()[:1] in ("{", "[")
    try:
        if not is_json:
            return yaml_documents.loose(text)
        if text.count("{") + text.count("[") > _MAX_CONTAINERS:
            raise CliError(
                f"{shown} holds more than {_MAX_CONTAINERS:,} objects and lists", hint=_SPLIT, code=Exit.USAGE
            )
        return json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise CliError(f"{shown} is not JSON: {where}: {error.msg}", hint=_HINT, code=Exit.USAGE) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}: " if mark else ""
        raise CliError(
            f"{shown} is not YAML: {where}{escape(truncate(str(error.problem), 200))}",
            hint=_HINT,
            code=Exit.USAGE,
        ) from error
    except (yaml.YAMLError, ValueError) as error:
        why = escape(truncate(str(error).splitlines()[0] if str(error) else "unreadable", 200))
        raise CliError(f"{shown} cannot be read: {why}", hint=_HINT, code=Exit.USAGE) from error
    except RecursionError as error:
        raise CliError(f"{shown} is nested too deeply", hint=_HINT, code=Exit.USAGE) from error


def _downloaded(source: str) -> bytes:
    from toolcrib_cli.downloads import downloaded

    return downloaded(source, MAX_BYTES)


def _bytes(source: str) -> bytes:
    try:
        if source == "-":
            raw = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with Path(source).open("rb") as file:
                raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise CliError(
            f"cannot read {escape(source)}: {error.strerror}", hint=_HINT, code=Exit.USAGE
        ) from error
    if len(raw) > MAX_BYTES:
        raise CliError(f"{escape(source)} is larger than {MAX_BYTES >> 20} MiB", hint=_SPLIT, code=Exit.USAGE)
    return raw


def _summary(result: Result) -> None:
    rows: list[tuple[object, str]] = [(result.total, "in the document"), (len(result.manifests), "imported")]
    if result.slashes:
        rows.append(
            (result.slashes, "of them with a path argument that refuses /, though the API may take it")
        )
    if lacking := len({where for where, _, _ in result.parameters_left_out}):
        rows.append((lacking, "of them without some optional parameters: comments in the output name each"))
    if result.unasked:
        rows.append((result.unasked, "left out by --include and --exclude"))
    rows.extend((count, f"left out: {escape(truncate(reason, 200))}") for reason, count in result.reasons())
    output.table(("operations", "what became of them"), rows, to=output.console(stderr=True))
