"""A real API server accepts what the chart renders. Nothing is created: each object is sent as a dry run.

It knows more than schemas do: that names of ports fit together, that an exception lies within its network, that a
selector matches its template.
"""

import json
from typing import Any

import httpx
import pytest

from chart import Object, named, render
from chart_values import MATRIX
from kubernetes_schemas import FOREIGN
from realparts.apiserver import ApiServer

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def addresses(apiserver: ApiServer) -> dict[str, tuple[str, bool]]:
    """API version and kind → the address of its collection, and whether it is namespaced."""
    groups = apiserver.client.get("/apis").json()["groups"]
    versions = ["v1", *(version["groupVersion"] for group in groups for version in group["versions"])]
    found = {}
    for version in versions:
        base = f"/api/{version}" if version == "v1" else f"/apis/{version}"
        # a group of definitions that have just come or gone is listed and not served
        for resource in apiserver.client.get(base).json().get("resources", ()):
            if "/" not in resource["name"]:
                found[f"{version}/{resource['kind']}"] = (
                    f"{base}/{{}}{resource['name']}",
                    resource["namespaced"],
                )
    return found


def test_the_api_server_accepts_every_object_of_every_set(
    apiserver: ApiServer, namespace: str, addresses: dict[str, tuple[str, bool]]
) -> None:
    """Each different object once, in a namespace of the test's own."""
    different = {
        json.dumps(_plain(item), sort_keys=True): item
        for values in MATRIX.values()
        for item in render(values).objects
        if item["kind"] != "CustomResourceDefinition"
    }
    refused = []
    for text, item in different.items():
        kind = f"{item['apiVersion']}/{item['kind']}"
        if kind in FOREIGN or kind.startswith("toolcrib.dev/"):
            continue
        collection, namespaced = addresses[kind]
        answer = apiserver.client.post(
            collection.format(f"namespaces/{namespace}/" if namespaced else ""),
            params={"dryRun": "All", "fieldValidation": "Strict"},
            content=text,
            headers={"Content-Type": "application/json"},
        )
        if answer.status_code not in (httpx.codes.CREATED, httpx.codes.CONFLICT):
            refused.append(f"{named(item)}: {answer.json()['message']}")
    assert not refused, "\n".join(refused)


def _plain(item: Object) -> dict[str, Any]:
    metadata = {key: value for key, value in item["metadata"].items() if key != "namespace"}
    return item | {"metadata": metadata}
