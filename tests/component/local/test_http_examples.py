"""Every route has a request in docs/reference/http.md, and a real registry answers it as the page says.

`TOOLCRIB_UPDATE_EXAMPLES=1` writes the answers; `make generate` puts them into the page.
"""

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from http_examples import HttpExample, shape
from local_mode import HEIST, LocalMode
from registry_harness import OPERATOR, mint
from registry_process import RegistryProcess, configuration, process

ROOT = Path(__file__).parents[3]
RECORDED = ROOT / "docs" / "reference_pages" / "recorded" / "http"
UPDATE = bool(os.environ.get("TOOLCRIB_UPDATE_EXAMPLES"))
FILES = {
    listener: [HttpExample.read(f) for f in sorted(RECORDED.glob(f"{listener}-*.http"))]
    for listener in ("agents", "admin", "metrics")
}
SERVER = """\
apiVersion: toolcrib.dev/v1alpha1
kind: Tool
metadata: {name: archive-list, namespace: heist}
spec:
  name: list_archive
  server: archive
  description: List the files of the crew's archive
  scopes: ["file_reader:use"]
  backend: {http: {service: {name: example-tools, port: 80}, path: /tools/list_archive}}
---
apiVersion: v1
kind: Namespace
metadata: {name: bank, labels: {toolcrib.dev/requests: enabled}}
---
apiVersion: toolcrib.dev/v1alpha1
kind: Tool
metadata: {name: ledger, namespace: bank}
spec:
  description: Read the bank's ledger
  scopes: ["ledger:read"]
  backend: {none: {}}
"""


def check(example: HttpExample, url: str, values: dict[str, str]) -> str:
    got = example.send(url, values)
    if UPDATE:
        example.write(got)
    else:
        assert shape(got) == shape(example.response), got
    return got


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalMode]:
    folder = tmp_path_factory.mktemp("http")
    (folder / "archive.yaml").write_text(SERVER)
    with LocalMode(folder, HEIST, folder / "archive.yaml", embedder="packaged") as made:
        yield made


@pytest.fixture(scope="module")
def values(local: LocalMode) -> dict[str, str]:
    return {
        "SAFECRACKER": local.token("safecracker"),
        "HACKER": local.token("hacker"),
        "ADMIN": local.token("planner", "--scopes", "registry:admin registry:write"),
        "CLIENT_SECRET": local.token("safecracker", "--client-secret"),
    }


@pytest.fixture(scope="module")
def replica(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryProcess]:
    folder = tmp_path_factory.mktemp("replica") / "registry"
    cluster = json.loads(configuration(folder).read_text())["issuers"]
    login = {"issuer": "https://login.example.com", "audience": ["toolcrib"], "scopes": "bindings"}
    (folder / "login.json").write_text('{"keys": []}')
    config = configuration(
        folder,
        registration=True,
        public_url="https://toolcrib.example.com",
        issuers=[*cluster, login | {"jwks_file": str(folder / "login.json")}],
    )
    with process(config) as made:
        yield made


def named(example: HttpExample) -> str:
    return example.file.stem


@pytest.mark.parametrize("example", FILES["agents"], ids=named)
def test_the_agents_listener_answers_as_the_page_says(
    example: HttpExample, local: LocalMode, replica: RegistryProcess, values: dict[str, str]
) -> None:
    # the local mode has no login of people, so no metadata of one
    metadata = "oauth-protected-resource" in example.path

    assert check(example, replica.url if metadata else local.url, values).startswith("200 ")


def test_the_admin_listener_answers_as_the_page_says_one_request_after_the_other(
    replica: RegistryProcess,
) -> None:
    values = {"ADMIN": mint(OPERATOR, audience="toolcrib-admin"), "SECRET": "s3cret"}
    for example in FILES["admin"]:
        got = check(example, replica.admin_url, values)
        # a list needs an MCP server: the page shows the refusal
        refused = example.path in ("/readyz", "/v1/admin/servers/list")
        assert got.startswith("200 ") or refused, got
        state = httpx.get(
            f"{replica.admin_url}/v1/admin/state", headers={"Authorization": f"Bearer {values['ADMIN']}"}
        )
        values["HASH"] = state.json()["hash"]
        if example.path.endswith("/chunks"):
            values["DIGEST"] = hashlib.sha256(example.body.encode()).hexdigest()


@pytest.mark.parametrize("example", FILES["metrics"], ids=named)
def test_the_metrics_listener_answers_as_the_page_says(
    example: HttpExample, replica: RegistryProcess
) -> None:
    check(example, replica.metrics_url, {})


def test_every_route_has_a_request_and_a_response_and_none_is_left_over() -> None:
    sys.path.insert(0, str(ROOT / "docs"))
    from reference_pages import surface

    for (listener, document), examples in zip(surface.documents().items(), FILES.values(), strict=True):
        routes = {f"{m.upper()} {path}" for path, methods in document["paths"].items() for m in methods}
        patterns = {route: re.compile(re.sub(r"\{\w+(:path)?\}", "[^/]+", route)) for route in routes}
        asked = {f"{e.method} {e.path.partition('?')[0]}" for e in examples}

        assert {r for r, p in patterns.items() if not any(p.fullmatch(a) for a in asked)} == set(), listener
        assert [a for a in asked if not any(p.fullmatch(a) for p in patterns.values())] == [], listener
        assert all(e.response for e in examples)


def test_the_shape_of_a_response_notices_another_status_name_or_kind() -> None:
    """The test of the test."""
    said = "200 OK\nContent-Type: application/json\n\n" + json.dumps({"tools": [{"name": "a", "n": 1}]})

    assert shape(said) == shape(said.replace('"a"', '"b"').replace("1", "2.5"))
    assert shape(said) != shape(said.replace("200 OK", "201 Created"))
    assert shape(said) != shape(said.replace('"name"', '"title"'))
    assert shape(said) != shape(said.replace('"a"', "null"))
