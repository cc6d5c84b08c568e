"""Access for a while in the local mode: an agent asks, the owner of the data folder decides."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from local_mode import LocalMode
from manifests import tool
from realparts.processes import wait_until

WHY = "to add\u202e numbers <b>"


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalMode]:
    (folder := tmp_path / "manifests").mkdir()
    labels = {"toolcrib.dev/requests": "enabled"}
    objects: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "heist", "labels": labels}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "hacker", "namespace": "heist"}},
        tool("calculator", backend={"none": {}}),
        tool("secret", "vault", backend={"none": {}}),
    ]
    (folder / "all.yaml").write_text("\n---\n".join(map(json.dumps, objects)))
    with LocalMode(tmp_path, folder) as running:
        yield running


def ask(local: LocalMode, tool_id: str, why: str = WHY) -> httpx.Response:
    headers = {"Authorization": f"Bearer {local.token('heist/hacker')}"}
    body = {"tool_id": tool_id, "why": why}
    return httpx.post(
        f"{local.url}/v1/access-requests", json=body, headers=headers, trust_env=False, timeout=60
    )


def seen(local: LocalMode) -> list[str]:
    headers = {"Authorization": f"Bearer {local.token('heist/hacker')}"}
    answer = httpx.get(local.url, headers=headers, trust_env=False, timeout=60)
    return [each["name"] for each in answer.json()["tools"]]


def listed(local: LocalMode, *more: str) -> list[dict[str, Any]]:
    done = local.toolcrib("access", "requests", "-o", "json", *more)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


@pytest.mark.slow
def test_the_owner_of_the_files_approves_and_the_clock_ends_it(local: LocalMode) -> None:
    absent, hidden = ask(local, "heist/none"), ask(local, "vault/secret")
    assert absent.status_code == hidden.status_code == 404
    answer = ask(local, "heist/calculator")
    assert answer.status_code == 200, answer.text
    key = answer.json()["request"]
    assert ask(local, "heist/calculator").json()["request"] == key
    wait_until(lambda: [each["request"] for each in listed(local)] == [key])
    (request,) = listed(local)
    assert (request["state"], request["changed"]) == ("open", False)
    assert not set("\u202e<>") & set(request["agentSays"])

    approved = local.toolcrib("access", "approve", key, "--for", "10s", "--yes")
    assert approved.returncode == 0, approved.stderr
    until = time.monotonic() + 10
    wait_until(lambda: seen(local) == ["calculator"])
    again = local.toolcrib("access", "approve", key, "--for", "1h", "--yes")
    assert again.returncode == 1
    wait_until(lambda: seen(local) == [], timeout=60)
    assert time.monotonic() >= until - 2
    wait_until(lambda: [each["state"] for each in listed(local, "--all")] == ["approved"])


def test_a_rejection_says_why_and_the_next_request_is_another(local: LocalMode) -> None:
    key = ask(local, "heist/calculator").json()["request"]
    wait_until(lambda: [each["request"] for each in listed(local)] == [key])
    rejected = local.toolcrib("access", "reject", key.partition("/")[2], "--reason", "not today")
    assert rejected.returncode == 0, rejected.stderr
    wait_until(lambda: [each["state"] for each in listed(local, "--all")] == ["rejected"])
    late = local.toolcrib("access", "approve", key, "--for", "1h", "--yes")
    assert (late.returncode, "is rejected: not today" in late.stderr) == (1, True)
    wait_until(lambda: ask(local, "heist/calculator").json()["request"] != key)
    assert seen(local) == []
