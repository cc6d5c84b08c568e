"""`toolcrib calls` in the local mode: the owner of the files confirms a call, once."""

import json
import subprocess
from collections.abc import Iterator

import httpx
import pytest

from local_mode import LocalMode
from manifests import binding, tool
from realparts.processes import wait_until
from stub_server import Answer, answering

KEY = "toolcrib.dev/confirm"


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalMode]:
    folder = tmp_path_factory.mktemp("calls")
    (manifests := folder / "manifests").mkdir()
    with answering(lambda asked: Answer(b'{"paid": true}')) as port:
        guarded = tool("pay", backend={"http": {"url": f"http://127.0.0.1:{port}/pay"}})
        guarded["metadata"]["annotations"] = {KEY: "always"}
        objects = [guarded, binding("hacker", ["pay:use"])]
        (manifests / "all.yaml").write_text("\n---\n".join(map(json.dumps, objects)))
        with LocalMode(folder, manifests) as running:
            yield running


def pay(local: LocalMode, amount: int) -> subprocess.CompletedProcess[str]:
    return local.toolcrib("call", "pay", "--as", "hacker", "--json", json.dumps({"amount": amount}))


def waiting(local: LocalMode) -> list[dict[str, str]]:
    told = local.toolcrib("calls", "pending", "-o", "json")
    assert told.returncode == 0, told.stderr
    found: list[dict[str, str]] = json.loads(told.stdout)
    return found


def test_the_owner_confirms_a_call_and_the_agent_makes_it_once(local: LocalMode) -> None:
    asked = pay(local, 5)
    (call,) = waiting(local)
    assert asked.returncode != 0
    assert f"toolcrib calls confirm {call['id']}" in asked.stderr
    assert (call["tool"], call["agent"], json.loads(call["arguments"])) == (
        "heist/pay",
        "heist/hacker",
        {"amount": 5},
    )
    table = local.toolcrib("calls", "pending").stdout
    assert all(part in table for part in ("AGE", call["id"], '{"amount": 5}'))
    assert waiting(local) != []

    unasked = local.toolcrib("calls", "confirm", call["id"])
    assert (unasked.returncode, "--yes" in unasked.stderr) == (2, True), "nothing is confirmed unseen"
    done = local.toolcrib("calls", "confirm", call["id"], "--yes")
    assert done.returncode == 0, done.stderr
    assert '{"amount": 5}' in done.stdout
    assert f"{call['id']} confirmed." in done.stdout

    paid = pay(local, 5)
    assert (paid.returncode, '"paid": true' in paid.stdout) == (0, True), paid.stderr
    assert pay(local, 5).returncode != 0
    log = local.data / "decisions.jsonl"
    wait_until(lambda: '"confirmed_by":"owner of the data folder"' in log.read_text(), 30)


def test_a_rejected_call_says_so(local: LocalMode) -> None:
    pay(local, 6)
    call = next(each for each in waiting(local) if '"amount": 6' in each["arguments"])
    assert local.toolcrib("calls", "reject", call["id"], "--yes").returncode == 0
    told = pay(local, 6)
    assert (told.returncode, "A person rejected this call" in told.stderr) == (4, True), told.stderr
    gone = local.toolcrib("calls", "confirm", call["id"], "--yes")
    assert (gone.returncode, f"no call {call['id']} waits" in gone.stderr) == (1, True)


def test_hidden_parts_of_arguments_take_a_flag_of_their_own(local: LocalMode) -> None:
    key = "sk-proj-abcdefghijklmnopqrst"
    arguments = json.dumps({"to": f"Ada # {key}"})
    local.toolcrib("call", "pay", "--as", "hacker", "--json", arguments)
    call = next(each for each in waiting(local) if "Ada # " in each["arguments"])
    assert (call["hiddenCharacters"], key in str(call)) == (len(key), False)

    shown = f"Ada # ***({len(key)} characters hidden)"
    refused = local.toolcrib("calls", "confirm", call["id"], "--yes")
    assert (refused.returncode, shown in refused.stdout) == (2, True)
    assert all(t in refused.stderr for t in (f"{len(key)} hidden characters", "--with-hidden-arguments"))
    told = local.toolcrib("call", "pay", "--as", "hacker", "--json", arguments)
    assert (told.returncode, call["id"] in told.stderr) == (1, True), "it still waits"
    assert "--with-hidden" not in told.stderr, "no caller suggests the flag"
    key_of_run = {"Authorization": f"Bearer {json.loads((local.data / 'local.json').read_text())['key']}"}
    for accepted in (None, 0, 1, True, "28"):
        body = {"id": call["id"], "decision": "Confirmed", "accepted_hidden": accepted}
        answer = httpx.post(f"{local.url}/local/calls", json=body, headers=key_of_run, trust_env=False)
        assert answer.status_code in (400, 422), accepted

    done = local.toolcrib("calls", "confirm", call["id"], "--yes", "--with-hidden-arguments")
    assert done.returncode == 0, done.stderr
    paid = local.toolcrib("call", "pay", "--as", "hacker", "--json", arguments)
    assert paid.returncode == 0, paid.stderr


def test_what_is_no_call_is_refused(local: LocalMode) -> None:
    assert local.toolcrib("calls", "confirm", "pay").returncode == 2
    assert local.toolcrib("calls", "confirm", "heist/0123456789ab", "--yes").returncode == 1


def test_the_route_is_for_the_key_alone(local: LocalMode) -> None:
    for headers in ({}, {"Authorization": f"Bearer {local.token('hacker')}"}):
        answer = httpx.get(f"{local.url}/local/calls", headers=headers, trust_env=False)
        assert answer.status_code == 401
    key = json.loads((local.data / "local.json").read_text())["key"]
    for body, status in (
        ({}, 400),
        ({"id": "x", "decision": "Maybe"}, 400),
        ({"id": "x", "decision": "Confirmed"}, 422),
    ):
        answer = httpx.post(
            f"{local.url}/local/calls", json=body, headers={"Authorization": f"Bearer {key}"}, trust_env=False
        )
        assert answer.status_code == status
