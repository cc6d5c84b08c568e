"""Tools imported from a document, called through a registry, against an API that takes only what the document describes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from openapi_stub import ApiStub, arguments, kinds
from registry_harness import RunningRegistry, binding, running_registry
from stub_server import answering
from toolcrib import publishing
from toolcrib.resources import Tool, parse
from toolcrib.wire.publish import Credential, Credentials, PublishedTool
from toolcrib_cli import yaml_documents
from toolcrib_cli.imports.openapi.importing import Wanted, imported

DOCUMENT = Path(__file__).parents[3] / "examples" / "imports" / "openapi.yaml"
SECRET = "s3cret-token"


@pytest.fixture(scope="module")
def stub() -> ApiStub:
    return ApiStub(yaml.safe_load(DOCUMENT.read_text()))


@pytest.fixture(scope="module")
def manifests(stub: ApiStub) -> Iterator[list[dict[str, Any]]]:
    with answering(stub) as port:
        wanted = Wanted("team", "rooms", scopes=("rooms:use",), url=f"http://127.0.0.1:{port}")
        yield imported(yaml_documents.loose(DOCUMENT.read_text()), wanted).manifests


def published(manifest: dict[str, Any]) -> PublishedTool:
    resource = parse(manifest, strict=True)
    assert isinstance(resource, Tool)
    return publishing.tool(resource)


@pytest.fixture(scope="module")
def registry(manifests: list[dict[str, Any]]) -> Iterator[RunningRegistry]:
    tools = [published(m) for m in manifests]
    with running_registry(tools, [binding("bot", ["rooms:use"])]) as running:
        host = manifests[0]["spec"]["backend"]["http"]["url"].split("/")[2]
        one = Credential(
            namespace="team",
            name="rooms-credential",
            key="credential",
            hosts=(f"http://{host}",),
            value=SECRET,
        )
        sent = Credentials(epoch=1, credentials=(one,)).model_dump_json()
        assert running.admin("POST", "/v1/admin/credentials", content=sent).is_success
        yield running


def call(registry: RunningRegistry, name: str, given: dict[str, Any]) -> Any:
    headers = registry.auth("team", "bot")
    return registry.http.post(f"{registry.url}/tools/{name}", headers=headers, json=given)


def test_one_operation_of_each_kind_is_called_as_its_document_describes(
    registry: RunningRegistry, manifests: list[dict[str, Any]]
) -> None:
    chosen = list(kinds(manifests))

    answers = {
        kind: call(registry, m["spec"]["name"], arguments(m["spec"]["inputSchema"])) for kind, m in chosen
    }

    assert len(chosen) >= 5
    assert {kind: answer.text for kind, answer in answers.items() if answer.status_code != 200} == {}


def test_every_argument_arrives_in_its_place(registry: RunningRegistry, stub: ApiStub) -> None:
    listed = call(
        registry, "listRooms", {"building": "HQ", "equipment": ["tv", "phone"], "Accept-Language": "de"}
    ).json()
    renamed = call(
        registry, "renameRoom", {"id_in_path": "r 1", "id": "r2", "name": "Atlas", "dry_run": True}
    ).json()
    booked = call(
        registry, "bookRoom", {"room": "r-1", "people": ["ada", "bo"], "when": {"from": "9", "to": "10"}}
    ).json()

    assert sorted(listed["query"]) == [["building", "HQ"], ["equipment", "phone"], ["equipment", "tv"]]
    assert listed["headers"]["accept-language"] == "de"
    assert stub.seen[-1]["headers"]["authorization"] == f"Bearer {SECRET}"
    assert (renamed["path"], renamed["query"]) == (["r 1"], [["dry_run", "true"]])
    assert renamed["body"] == {"id": "r2", "name": "Atlas"}
    assert booked["body"] == {"room": "r-1", "people": ["ada", "bo"], "when": {"from": "9", "to": "10"}}


def test_a_path_argument_with_a_slash_stays_refused(registry: RunningRegistry, stub: ApiStub) -> None:
    before = len(stub.seen)

    answer = call(registry, "readFile", {"path": "a/b"})

    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_arguments")
    assert len(stub.seen) == before


def test_what_the_document_does_not_name_is_refused(registry: RunningRegistry) -> None:
    answer = call(registry, "listRooms", {"building": "HQ", "admin": True})

    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_arguments")
