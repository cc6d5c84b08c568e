"""No tool may have a name that is a word of the registry's routes: derived from the routes, so that none is forgotten."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Route

from toolcrib import names
from toolcrib.errors import InvalidManifest
from toolcrib.resources import API_VERSION, parse
from toolcrib_registry.http import app
from toolcrib_registry.identity.issuer import ClientTokens, LocalIssuer

COMING = {".well-known", "mcp", "v0.1"}
"""First segments of routes that the design names and that are not here yet."""


def paths(routes: Any) -> Iterator[str]:
    """Of all routes, also of those in included routers and mounted applications."""
    for route in routes:
        if (path := getattr(route, "path", None)) is not None:
            yield path
        inner = getattr(route, "original_router", route)
        yield from paths(getattr(inner, "routes", None) or ())


def route_words(routes: Any) -> set[str]:
    """First segments, and what stands where `/tools/{name}` has the name."""
    found = set()
    for path in paths(routes):
        first, *rest = path.strip("/").split("/")
        found |= {first, rest[0]} if first == "tools" and rest else {first}
    return {word for word in found if word and "{" not in word}


def registry_routes(folder: Path) -> list[Any]:
    issuer = ClientTokens(LocalIssuer.open(folder / "issuer"), lambda namespace, name: set())
    agents, metrics, admin = (FastAPI(docs_url=None, redoc_url=None) for _ in range(3))
    return [*app._agents(agents, issuer).routes, *app._metrics(metrics).routes, *app._admin(admin).routes]


def test_every_route_word_is_reserved(tmp_path: Path) -> None:
    words = route_words(registry_routes(tmp_path))

    assert {"register", "v1", "tools", "metrics", "oauth", "openapi.json"} <= words
    assert words | COMING | {".", ".."} == names.RESERVED_TOOL_NAMES


def test_a_new_route_is_noticed(tmp_path: Path) -> None:
    async def nothing(_: Any) -> None: ...

    routes = [*registry_routes(tmp_path), Route("/tools/newest", nothing), Route("/newer/{name}", nothing)]
    mounted = Starlette()
    mounted.mount("/newly", Starlette())

    assert route_words([*routes, *mounted.routes]) - names.RESERVED_TOOL_NAMES == {"newest", "newer", "newly"}


@pytest.mark.parametrize("name", sorted(names.RESERVED_TOOL_NAMES))
@pytest.mark.parametrize("strict", [True, False])
def test_a_manifest_of_that_name_is_refused(name: str, strict: bool) -> None:
    manifest: dict[str, Any] = {
        "apiVersion": API_VERSION,
        "kind": "Tool",
        "metadata": {"name": "sample", "namespace": "team-a"},
        "spec": {"name": name, "scopes": ["a:use"], "backend": {"none": {}}},
    }
    with pytest.raises(InvalidManifest, match="reserved"):
        parse(manifest, strict=strict)
    manifest["spec"]["name"] = f"{name}-1"
    assert parse(manifest, strict=strict)


@pytest.mark.parametrize("name", ["register", "v1", "metrics"])
def test_so_is_one_that_has_it_for_its_objects_name_alone(name: str) -> None:
    manifest = {
        "apiVersion": API_VERSION,
        "kind": "Tool",
        "metadata": {"name": name, "namespace": "team-a"},
        "spec": {"scopes": ["a:use"], "backend": {"none": {}}},
    }
    with pytest.raises(InvalidManifest, match="reserved"):
        parse(manifest, strict=True)
    manifest["spec"] = {**manifest["spec"], "name": "other"}  # type: ignore[dict-item]
    assert parse(manifest, strict=True)
