"""`toolcrib doctor` against a running local mode: what its folder, its manifests and one question without a token tell."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from local_mode import HEIST, LocalMode

WIDE = """
---
apiVersion: toolcrib.dev/v1alpha1
kind: ClusterAgentScopeBinding
metadata: {name: wide}
spec:
  subjects: [{kind: ServiceAccount, namespace: heist, name: planner}]
  scopes: ["calculator:use"]
  namespaceSelector: {}
---
apiVersion: toolcrib.dev/v1alpha1
kind: Tool
metadata: {name: plain, namespace: heist}
spec:
  description: Reads the weather of a town.
  scopes: ["calculator:use"]
  backend: {http: {url: "http://tools.example.com/"}}
"""


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    return Path(shutil.copytree(HEIST, tmp_path / "heist"))


@pytest.fixture
def local(tmp_path: Path, manifests: Path) -> Iterator[LocalMode]:
    with LocalMode(tmp_path, manifests) as running:
        yield running


def items(local: LocalMode, code: int | None = None) -> dict[str, str]:
    done = local.toolcrib("doctor", "--local", "-o", "json")
    told = json.loads(done.stdout)
    assert done.returncode == (1 if told["fail"] else 2 if told["unknown"] else 0), done.stderr
    return {i["item"]: i["outcome"] for i in told["items"]}


def test_a_fresh_local_mode_passes_and_what_is_opened_fails(local: LocalMode, manifests: Path) -> None:
    before = (local.data / "decisions.jsonl").read_text()
    assert {name for name, outcome in items(local).items() if outcome != "pass"} == set()
    (manifests / "90-wide.yaml").write_text(WIDE)
    (local.data / "audit.key").chmod(0o644)
    found = {name for name, outcome in items(local).items() if outcome == "fail"}
    assert found == {"everywhere", "expiring", "plain-http", "private-files"}
    # it has listed without a token, which is recorded, and called nothing
    assert '"call"' not in (local.data / "decisions.jsonl").read_text().removeprefix(before)


def test_hidden_text_that_is_only_warned_of_fails(tmp_path: Path) -> None:
    with LocalMode(tmp_path, HEIST, extra=("--hidden-text", "warn")) as lenient:
        assert items(lenient)["hidden-text"] == "fail"


def test_the_local_mode_of_another_folder_is_unknown_and_not_passed(local: LocalMode, tmp_path: Path) -> None:
    (other := tmp_path / "other").mkdir(mode=0o700)
    done = local.toolcrib("doctor", "--data", str(other), "--url", local.url)
    assert done.returncode == 2
    assert "private-files" in done.stdout
    assert "earlier version" not in done.stdout
    assert " 0 fail" in done.stdout


def test_one_that_was_stopped_is_no_pass(local: LocalMode) -> None:
    local.interrupt()
    done = local.toolcrib("doctor", "--local")
    assert done.returncode == 2
    assert "no registry answers" in done.stderr
