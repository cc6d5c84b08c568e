"""The example tools over real sockets: what they answer, and what they refuse."""

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from toolcrib_cli.example_tools import Address, serving

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tools")


@pytest.fixture(scope="module")
async def address(anyio_backend: str, data_dir: Path) -> AsyncIterator[Address]:
    async with serving(data_dir=data_dir, assertions=None) as address:
        yield address


@pytest.fixture
async def client(address: Address) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=address.url, timeout=10, trust_env=False) as client:
        yield client


async def answer(client: httpx.AsyncClient, tool: str, **arguments: object) -> dict[str, Any]:
    response = await client.post(f"/tools/{tool}", json=arguments)
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


async def refusal(client: httpx.AsyncClient, tool: str, status: int, **arguments: object) -> dict[str, Any]:
    response = await client.post(f"/tools/{tool}", json=arguments)
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert body.keys() == {"type", "title", "status", "detail", "code"}
    assert body["status"] == status
    return body


async def test_health_is_answered(client: httpx.AsyncClient) -> None:
    assert (await client.get("/healthz")).json() == {"status": "ok"}


async def test_the_calculator_answers(client: httpx.AsyncClient) -> None:
    assert await answer(client, "calculator", expression=" 7 * 6 ") == {"expression": "7 * 6", "result": 42}


async def test_a_whole_number_that_json_readers_would_round_comes_as_text_too(
    client: httpx.AsyncClient,
) -> None:
    body = await answer(client, "calculator", expression="2**100")
    assert body["result"] == pytest.approx(2.0**100)
    assert body["exact"] == str(2**100)


async def test_the_calculator_refuses_code(client: httpx.AsyncClient) -> None:
    body = await refusal(client, "calculator", 400, expression="__import__('os').system('id')")
    assert body["code"] == "invalid_argument"


async def test_a_shared_file_is_read(client: httpx.AsyncClient) -> None:
    body = await answer(client, "read_file", filename="guard_schedule.txt")
    assert "Lindqvist" in body["content"]
    assert body["size"] == len(body["content"].encode())


async def test_an_unknown_file_is_answered_with_the_names_there_are(client: httpx.AsyncClient) -> None:
    body = await refusal(client, "read_file", 404, filename="combination.txt")
    assert "guard_schedule.txt" in body["detail"]


async def test_files_outside_the_shared_folder_cannot_be_read(
    client: httpx.AsyncClient, data_dir: Path
) -> None:
    (data_dir / "shared" / "way_out").symlink_to(data_dir / "heist.db")
    body = await refusal(client, "read_file", 404, filename="way_out")
    assert str(data_dir) not in body["detail"]
    await refusal(client, "read_file", 400, filename="../heist.db")
    await refusal(client, "read_file", 400, filename="/etc/hostname")


async def test_the_database_answers_a_question(client: httpx.AsyncClient) -> None:
    body = await answer(
        client, "database_query", query="SELECT location FROM cameras WHERE status = 'offline' ORDER BY id"
    )
    assert body == {
        "columns": ["location"],
        "rows": [["vault corridor north"], ["roof"]],
        "row_count": 2,
        "truncated": False,
    }


async def test_the_database_cannot_be_changed(client: httpx.AsyncClient) -> None:
    await refusal(client, "database_query", 400, query="DELETE FROM cameras")
    assert (await answer(client, "database_query", query="SELECT count(*) FROM cameras"))["rows"] == [[6]]


async def test_an_endless_query_is_stopped_while_other_calls_go_on(client: httpx.AsyncClient) -> None:
    everything = "SELECT count(*) FROM cameras a, cameras b, cameras c, cameras d, cameras e, cameras f"
    everything += ", cameras g, cameras h, cameras i, cameras j, cameras k, cameras l, cameras m"
    slow = asyncio.create_task(refusal(client, "database_query", 422, query=everything))
    await answer(client, "calculator", expression="1 + 1")
    assert not slow.done()
    assert (await slow)["code"] == "query_too_slow"


async def test_simulated_data_is_the_same_at_every_call(client: httpx.AsyncClient) -> None:
    first = await answer(client, "simulation_data", scenario="vault_drill", steps=5)
    assert first == await answer(client, "simulation_data", scenario="vault_drill", steps=5)
    assert len(first["measurements"]) == 5


async def test_a_simulation_without_arguments_is_the_one_that_its_definition_names(
    client: httpx.AsyncClient,
) -> None:
    assert await answer(client, "simulation_data") == await answer(
        client, "simulation_data", scenario="vault_drill", steps=10
    )
    assert "must be a string" in (await refusal(client, "simulation_data", 400, scenario=None))["detail"]


async def test_an_unknown_scenario_is_answered_with_the_known_ones(client: httpx.AsyncClient) -> None:
    assert "laser_grid" in (await refusal(client, "simulation_data", 400, scenario="flood"))["detail"]


async def test_echo_says_which_tool_was_meant_and_what_it_was_given(client: httpx.AsyncClient) -> None:
    arguments = {"q": "naïve 😀", "n": [1, {"a": None}]}
    body = await answer(client, "echo/github-search-0a1b2c", **arguments)
    assert body == {"tool": "github-search-0a1b2c", "arguments": arguments}


@pytest.mark.parametrize("tool", ["calculator", "echo", "echo/some-tool"])
@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[1]", "must be a JSON object"),
        (b'"x"', "must be a JSON object"),
        (b'{"expression": "1", "expression": "2"}', "twice"),
        (b'{"expression": NaN}', "NaN"),
        (b'{"expression": 1e400}', "too large"),
        (b'{"expression": ' + b"9" * 5000 + b"}", "too long"),
        (b'{"expression": "\xff"}', "not JSON"),
        (b'{"expression": "\\ud800"}', "surrogate"),
        (b'{"expression": [{"\\udc00": 1}]}', "surrogate"),
        (b"[" * 60_000, "too deeply"),
        (b'{"expression": ' + b"[" * 64 + b"]" * 64 + b"}", "too deeply"),
    ],
)
async def test_a_body_that_is_no_object_of_arguments_is_refused_with_its_reason(
    client: httpx.AsyncClient, tool: str, body: bytes, what: str
) -> None:
    headers = {"Content-Type": "application/json"}
    response = await client.post(f"/tools/{tool}", content=body, headers=headers)
    assert response.status_code == 400
    assert what in response.json()["detail"]


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({}, "required"),
        ({"expression": 3}, "must be a string"),
        ({"expression": None}, "must be a string"),
        ({"expression": "  "}, "empty"),
        ({"expression": "1" * 501}, "longer than 500"),
        ({"expression": "1", "shell": "id"}, "Unknown argument 'shell'"),
    ],
)
async def test_arguments_that_the_tool_does_not_take_are_refused_with_their_reason(
    client: httpx.AsyncClient, arguments: dict[str, object], what: str
) -> None:
    assert what in (await refusal(client, "calculator", 400, **arguments))["detail"]


async def test_answers_are_not_held_back_by_the_network_stack(client: httpx.AsyncClient) -> None:
    """Nagle's algorithm and delayed acknowledgements together cost 40 ms a call on one connection."""
    fastest = 1.0
    for _ in range(20):
        started = time.perf_counter()
        await answer(client, "echo")
        fastest = min(fastest, time.perf_counter() - started)
    assert fastest < 0.03


async def test_an_oversized_body_is_refused_before_it_is_read_whole(address: Address) -> None:
    """Declared as a gigabyte and sent in a hurry: the answer comes after 64 KiB."""
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(
        b"POST /tools/echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: 1000000000\r\n\r\n" + b" " * 200_000
    )
    status = await asyncio.wait_for(reader.readline(), 10)
    writer.close()
    assert b" 413 " in status


async def test_pages_in_a_browser_are_refused(client: httpx.AsyncClient) -> None:
    headers = {"Origin": "http://127.0.0.1:8080"}
    response = await client.post("/tools/calculator", json={"expression": "1"}, headers=headers)
    assert response.status_code == 403


async def test_only_json_is_taken(client: httpx.AsyncClient) -> None:
    response = await client.post("/tools/calculator", content=b'{"expression": "1"}')
    assert response.status_code == 415


@pytest.mark.parametrize("path", ["/", "/tools/shell", "/tools/echo/a%2Fb", "/tools/echo/a%20b"])
async def test_an_unknown_path_is_a_problem_document(client: httpx.AsyncClient, path: str) -> None:
    response = await client.post(path, json={})
    assert response.status_code == 404
    assert response.headers["content-type"] == "application/problem+json"


async def test_a_wrong_method_is_a_problem_document(client: httpx.AsyncClient) -> None:
    response = await client.get("/tools/calculator")
    assert response.status_code == 405
    assert response.json()["code"] == "method_not_allowed"
    assert response.headers["allow"] == "POST"


async def test_a_damaged_database_heals_and_own_files_stay_at_the_next_start(tmp_path: Path) -> None:
    async with serving(data_dir=tmp_path, assertions=None):
        pass
    (tmp_path / "heist.db").write_bytes(b"damaged" * 1000)
    (tmp_path / "shared" / "mine.txt").write_text("my own")
    async with serving(data_dir=tmp_path, assertions=None) as address:
        async with httpx.AsyncClient(base_url=address.url, trust_env=False) as client:
            assert (await answer(client, "database_query", query="SELECT count(*) FROM guards"))["rows"]
            assert (await answer(client, "read_file", filename="mine.txt"))["content"] == "my own"


async def test_a_taken_port_is_an_error_at_once(address: Address) -> None:
    with pytest.raises(OSError, match="in use"):
        async with serving(port=address.port, assertions=None):
            pass


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_the_process_ends_cleanly_on_a_signal_and_leaves_nothing(
    tmp_path: Path, number: signal.Signals
) -> None:
    program = "from toolcrib_cli.example_tools import run; run(port=0, assertions=None, announce=lambda a: print(a, flush=True))"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE, env=environment
    )
    try:
        assert process.stdout is not None
        line = (await asyncio.wait_for(process.stdout.readline(), 30)).decode().strip()
        host, _, port = line.rpartition(":")
        assert host == "127.0.0.1"
        with socket.create_connection((host, int(port)), timeout=5):
            process.send_signal(number)
            started = time.monotonic()
            assert await asyncio.wait_for(process.wait(), 10) == 0
        assert time.monotonic() - started < 8
        assert os.listdir(tmp_path) == []
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
