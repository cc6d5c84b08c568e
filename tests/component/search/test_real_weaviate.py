"""The Weaviate that the index tests stand on does what they rely on."""

import contextlib
from collections.abc import Iterator

import httpx
import pytest
import weaviate
from weaviate.classes.config import Configure, DataType, Property
from weaviate.classes.init import AdditionalConfig, Auth, Timeout

from realparts.required import require_real
from realparts.weaviate import Weaviate

pytestmark = pytest.mark.real

KEY = "only-for-this-test"


@pytest.fixture(scope="module")
def guarded_server() -> Iterator[Weaviate]:
    require_real("weaviate")
    with Weaviate(api_key=KEY) as server:
        yield server


@contextlib.contextmanager
def connected(server: Weaviate) -> Iterator[weaviate.WeaviateClient]:
    # The initial checks would look for a newer client on the network.
    client = weaviate.connect_to_local(
        host=server.host,
        port=server.http_port,
        grpc_port=server.grpc_port,
        auth_credentials=Auth.api_key(server.api_key) if server.api_key else None,
        additional_config=AdditionalConfig(timeout=Timeout(init=30)),
        skip_init_checks=True,
    )
    with client:
        yield client


def insert_two_tools(client: weaviate.WeaviateClient) -> None:
    tools = client.collections.create(
        "RealPartTool",
        properties=[Property(name="title", data_type=DataType.TEXT)],
        vector_config=Configure.Vectors.self_provided(),
    )
    tools.data.insert({"title": "calculator"}, vector=[1.0, 0.0])
    tools.data.insert({"title": "file reader"}, vector=[0.0, 1.0])


def test_an_inserted_object_is_found_by_word_and_vector(weaviate_server: Weaviate) -> None:
    weaviate_server.wipe()
    with connected(weaviate_server) as client:
        insert_two_tools(client)
        tools = client.collections.get("RealPartTool")

        by_word = tools.query.bm25("reader", limit=1).objects
        hybrid = tools.query.hybrid("calculator", vector=[0.9, 0.1], limit=1).objects

    assert [found.properties["title"] for found in by_word] == ["file reader"]
    assert [found.properties["title"] for found in hybrid] == ["calculator"]
    weaviate_server.wipe()
    assert weaviate_server.client.get("/v1/schema").json()["classes"] == []


def test_a_server_with_a_key_refuses_callers_without_it(guarded_server: Weaviate) -> None:
    answer = httpx.get(f"{guarded_server.url}/v1/schema", timeout=30)
    assert answer.status_code == httpx.codes.UNAUTHORIZED
    assert guarded_server.client.get("/v1/schema").is_success


def test_data_survives_a_crash_on_the_same_ports(guarded_server: Weaviate) -> None:
    with connected(guarded_server) as client:
        insert_two_tools(client)

    guarded_server.kill()
    assert not guarded_server.ready()
    guarded_server.start()

    with connected(guarded_server) as client:
        tools = client.collections.get("RealPartTool")
        assert tools.aggregate.over_all(total_count=True).total_count == 2
