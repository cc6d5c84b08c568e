"""What `toolcrib up` prints of objects that are not as they should be: what the operator says of them, with file and line."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from local_mode import LocalMode
from manifests import binding, cluster_binding, tool
from realparts.processes import wait_until
from toolcrib_cli import manifests
from toolcrib_cli.places import Places
from toolcrib_cli.prediction.validation import alone
from toolcrib_operator.kinds.secret import HOSTS, LABEL

ACCOUNT = {
    "apiVersion": "v1",
    "kind": "ServiceAccount",
    "metadata": {"name": "planner", "namespace": "heist"},
}
KEY = {"type": "Bearer", "secretKeyRef": {"name": "vault", "key": "token"}}
OBJECTS = {
    "calculator": tool("calculator", backend={"none": {}}),
    "labelled": cluster_binding(
        "planner", ["calculator:use"], namespaceSelector={"matchLabels": {"team": "a"}}
    ),
    "old": binding(
        "old",
        ["calculatr:use"],
        subjects=[{"kind": "ServiceAccount", "name": "plannner"}],
        expiresAt="2020-01-01T00:00:00Z",
    ),
    "pocket": tool("pocket", name="calculator", backend={"none": {}}),
    "planner": ACCOUNT,
    "vault": tool("vault", backend={"http": {"url": "http://127.0.0.1:9/open"}, "auth": KEY}),
}
SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {
        "name": "vault",
        "namespace": "heist",
        "labels": {LABEL: "true"},
        "annotations": {HOSTS: "http://127.0.0.1:9"},
    },
    "stringData": {"token": "s3cr3t-value"},
}


def write(folder: Path, name: str, body: dict[str, Any]) -> None:
    draft = folder.parent / "draft"
    draft.write_text(json.dumps(body, indent=1))
    draft.replace(folder / f"{name}.json")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (made := tmp_path / "manifests").mkdir()
    for name, body in OBJECTS.items():
        write(made, name, body)
    return made


@pytest.fixture
def local(tmp_path: Path, folder: Path) -> Iterator[LocalMode]:
    with LocalMode(tmp_path, folder) as running:
        yield running


def judged(folder: Path) -> list[str]:
    """The lines about what the operator says of the folder's objects."""
    contents, places = [manifests.read(file) for file in manifests.files_in([folder])], Places()
    found = [(r.item.named, r.problem(places)) for r in alone(contents, now=time.time())]
    return [f"{p.file}:{p.line}: {named}: {p.finding}" for named, p in found]


def test_the_start_and_each_edit_say_what_the_operator_says(local: LocalMode, folder: Path) -> None:
    lines = judged(folder)
    for reason in ("NameConflict", "UntrustedLabel", "Expired", "SubjectNotFound", "CredentialMissing"):
        assert any(reason in line for line in lines)
    start = local.output
    assert [line for line in lines if line not in start] == []
    assert " in effect" not in start

    write(folder, "old", OBJECTS["old"] | {"spec": {**OBJECTS["old"]["spec"], "scopes": ["calcul:use"]}})
    edited = [line for line in judged(folder) if "heist/old" in line]
    wait_until(lambda: all(line in local.output.removeprefix(start) for line in edited), timeout=60)
    assert "heist/old in effect" not in local.output

    # what an edit changes of other objects is told too, without an edit of theirs
    (folder / "calculator.json").unlink()
    wait_until(lambda: "Tool heist/pocket in effect" in local.output, timeout=60)
    write(folder, "secret", SECRET)
    wait_until(lambda: "Tool heist/vault in effect" in local.output, timeout=60)
    second = ACCOUNT | {"metadata": {"name": "plannner", "namespace": "heist"}}
    write(folder, "second", second)
    write(
        folder,
        "old",
        binding("old", ["calculator:use"], subjects=[{"kind": "ServiceAccount", "name": "plannner"}]),
    )
    wait_until(lambda: "AgentScopeBinding heist/old in effect" in local.output, timeout=60)
    assert "s3cr3t" not in local.output
