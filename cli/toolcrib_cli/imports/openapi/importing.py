"""A whole document: which operations become Tools, and why the others do not."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urljoin, urlsplit

from toolcrib import names
from toolcrib.resources.addresses import URL
from toolcrib.text import escape, truncate
from toolcrib_cli.imports.openapi import naming, operations
from toolcrib_cli.imports.openapi.documents import (
    Document,
    LeftOutError,
    UnusableDocumentError,
    listed,
    mapped,
)
from toolcrib_cli.imports.openapi.operations import Identity, Place
from toolcrib_cli.imports.openapi.schemas import Schemas
from toolcrib_cli.imports.openapi.security import Scheme, Security

MAX_TOOLS = 5_000
"""Tools of one namespace, unless its quota is another."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What people ask for.

    Attributes:
        namespace: of all Tools.
        name: server of all Tools, and first part of their scopes; None: made of the document's title.
        scopes: of every Tool; empty: by tag and method.
        include, exclude: globs of names, operationIds and `METHOD /path`.
        url: where the API is; None: as the document says.
        service: name and port of a Service that the API is behind.
        source: the document's own address, which relative servers go by.
    """

    namespace: str = "default"
    name: str | None = None
    scopes: Sequence[str] = ()
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    url: str | None = None
    service: tuple[str, int] | None = None
    source: str | None = None


@dataclass(slots=True)
class Result:
    """What became of a document.

    Attributes:
        name: server of the Tools, and first part of their scopes.
        place: where they are called.
        manifests: of the Tools.
        left_out: (`METHOD /path`, reason) of the others that were asked for.
        parameters_left_out: (`METHOD /path`, place and name, reason) of optional parameters that are no arguments.
        total: operations in the document.
        unasked: those that --include and --exclude leave out.
        slashes: tools with an argument that the API takes with a `/`.
        secrets: scheme by name of the Secret that it needs.
        unusable: schemes that no tool can use.
    """

    name: str
    place: Place
    manifests: list[dict[str, Any]] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    parameters_left_out: list[tuple[str, str, str]] = field(default_factory=list)
    total: int = 0
    unasked: int = 0
    slashes: int = 0
    secrets: dict[str, Scheme] = field(default_factory=dict)
    unusable: set[str] = field(default_factory=set)

    def reasons(self) -> list[tuple[str, int]]:
        """Why operations were left out, the most frequent reason first."""
        return Counter(reason for _, reason in self.left_out).most_common()


def imported(
    content: Any, wanted: Wanted, progress: Callable[[int, int], None] = lambda _done, _all: None
) -> Result:
    """The Tools of a document.

    Args:
        content: the document, parsed.
        wanted: what is asked for.
        progress: is told how many operations of how many are done.

    Raises:
        UnusableDocumentError: nothing can be imported.
    """
    document = Document(content)
    found = list(document.operations())
    called = naming.tool_names([(method, path, operation) for method, path, _, operation in found])
    name = wanted.name or names.slug(document.title or "api", 40)
    prefix = f"api-{name}" if names.is_reserved_scope(f"{name}:") else name
    shared = naming.shared_segments([path for _, path, _, _ in found])
    asked = [
        (tool, *each)
        for tool, each in zip(called, found, strict=True)
        if _asked(wanted, tool, each[0], each[1], each[3])
    ]
    if len(asked) > MAX_TOOLS:
        raise UnusableDocumentError(
            f"{len(asked):,} operations are asked for, and a namespace holds {MAX_TOOLS:,} Tools",
            "choose some with --include, for example --include 'GET /users*'",
        )
    place = _place(document.content, wanted)
    result = Result(name, place, total=len(found), unasked=len(found) - len(asked))
    schemas, security = Schemas(document), Security(document)
    secrets: dict[str, str] = {}
    for done, (tool, method, path, item, operation) in enumerate(asked):
        progress(done, len(asked))
        scheme = security.of_operation(operation)
        secret = "" if scheme is None else secrets.setdefault(scheme.name, _secret(name, scheme, secrets))
        scopes = wanted.scopes or (naming.scope(prefix, naming.topic(path, operation, shared), method),)
        try:
            here = _own_place(document, place, item, operation, wanted)
            made = operations.tool(
                document, schemas, Identity(tool, name, wanted.namespace, scopes), here, scheme, secret, method, path,
                item, operation,
            )  # fmt: skip
        except LeftOutError as error:
            result.left_out.append((f"{method.upper()} {path}", str(error)))
            continue
        except UnicodeEncodeError:
            result.left_out.append(
                (f"{method.upper()} {path}", "it holds a lone surrogate, which is not a character")
            )
            continue
        result.manifests.append(made.manifest)
        result.slashes += bool(made.slashes)
        result.parameters_left_out.extend((f"{method.upper()} {path}", *each) for each in made.left_out)
        if scheme is not None:
            result.secrets[secret] = scheme
    result.unusable = security.unusable
    progress(len(asked), len(asked))
    return result


def _asked(wanted: Wanted, tool: str, method: str, path: str, operation: dict[str, Any]) -> bool:
    own = operation.get("operationId")
    said = (tool, own if isinstance(own, str) else tool, f"{method.upper()} {path}")

    def matches(globs: Sequence[str]) -> bool:
        return any(names.glob_matches(glob, text[:2_048]) for glob in globs for text in said)

    return (not wanted.include or matches(wanted.include)) and not matches(wanted.exclude)


def _secret(name: str, scheme: Scheme, secrets: dict[str, str]) -> str:
    base = names.slug(name, 40)
    first = f"{base}-credential"
    return (
        first if first not in secrets.values() else f"{base}-{names.slug(scheme.name, 40)}-{len(secrets) + 1}"
    )


def _place(content: dict[str, Any], wanted: Wanted) -> Place:
    """Where the API is.

    Raises:
        UnusableDocumentError: the document does not say it, or only in part.
    """
    if wanted.url is not None:
        return Place(None, _checked(wanted.url))
    server = next(iter(listed(content.get("servers"))), {"url": "/"})
    address = _address(mapped(server), wanted.source)
    if wanted.service is not None:
        path = urlsplit(address).path if address is not None else _path_alone(mapped(server))
        return Place(wanted.service, re.sub(r"[{}].*", "", path))
    if address is None:
        said = mapped(server).get("url")
        # what precedes @ and what follows ? may be secrets
        shown = (
            escape(truncate(re.sub(r"//[^/]*@", "//", said.partition("?")[0]), 200))
            if isinstance(said, str)
            else ""
        )
        raise UnusableDocumentError(
            f"its server '{shown}' is not a whole address" if isinstance(said, str) else "it names no server",
            "give the API's address with --url, or a Service with --service NAME:PORT",
        )
    return Place(None, _checked(address))


def _path_alone(server: dict[str, Any]) -> str:
    url = server.get("url")
    try:
        return urlsplit(url).path if isinstance(url, str) else ""
    except ValueError:
        return ""


def _address(server: dict[str, Any], source: str | None) -> str | None:
    """The address of a server, its variables filled with their defaults; None: it is not whole."""
    url = server.get("url")
    if not isinstance(url, str) or len(url) > 2_048:
        return None
    variables = mapped(server.get("variables"))

    def value(found: re.Match[str]) -> str:
        default = mapped(variables.get(found[1])).get("default")
        return str(default) if isinstance(default, str | int) and default != "" else found[0]

    url = re.sub(r"\{([^{}]{1,64})\}", value, url)
    try:
        url = urljoin(source, url) if source else url
        parts = urlsplit(url)
    except ValueError:
        return None
    return url if parts.scheme in ("http", "https") and parts.hostname and "{" not in url else None


def _checked(url: str) -> str:
    """The address without user, query and fragment, which may be secrets."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
        parts = urlsplit("")
    place = f"[{host}]" if host and ":" in host else host
    plain = f"{parts.scheme}://{place}{f':{port}' if port is not None else ''}{parts.path}"
    if host is None or re.fullmatch(URL, plain) is None:
        raise UnusableDocumentError(
            "the address of its server has characters that a URL must encode", "give the address with --url"
        )
    return plain


def _own_place(
    document: Document, place: Place, item: dict[str, Any], operation: dict[str, Any], wanted: Wanted
) -> Place:
    """Where an operation is that names a server of its own."""
    own = listed(operation.get("servers")) or listed(item.get("servers"))
    usual = listed(document.content.get("servers"))
    if not own or (usual and _plain_url(own[0]) == _plain_url(usual[0])):
        return place
    address = _address(mapped(own[0]), wanted.source)
    if wanted.url is not None or wanted.service is not None or address is None:
        raise LeftOutError("it has a server of its own")
    try:
        return Place(None, _checked(address))
    except UnusableDocumentError:
        raise LeftOutError("it has a server of its own") from None


def _plain_url(server: Any) -> str:
    """Its URL without a scheme: some name it with operations only."""
    url = mapped(server).get("url")
    return url.partition("//")[2].rstrip("/") if isinstance(url, str) else ""
