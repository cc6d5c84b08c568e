"""The story of the guide: a week's log, a suggestion, its patch, a replay with it, and nothing that changed."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

import heist_week
from realparts import lookup
from realparts.required import require_real
from toolcrib_cli.main import main

SINCE = "2027-03-01T01:00:00Z"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return heist_week.written(tmp_path_factory.mktemp("week"))


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert not ended.value.code, capsys.readouterr().err
    return capsys.readouterr().out


def suggested(capsys: pytest.CaptureFixture[str], log: Path, output: str) -> str:
    return told(capsys, "access", "suggest", "--log", str(log), "--since", SINCE, "-o", output)


def test_a_week_leaves_what_was_used(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(suggested(capsys, log, "json"))
    (found,) = document["suggestions"]

    assert [e["entry"] for e in found["remove"]] == ["ServiceAccount/heist/planner", "*_*"]
    kept = {e["entry"]: e["calls"] for e in found["keep"]}
    assert kept["ServiceAccount/heist/hacker"] == 7 * 24 + 2 * 24
    assert kept["database_query"] == 24, "calls that failed are uses, too"
    assert set(kept) >= {"file_reader", "simulation_data", "calculator", "database:read"}


@pytest.mark.real
def test_the_patch_makes_a_manifest_with_which_no_call_of_the_week_is_decided_otherwise(
    log: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    require_real("kubectl")
    patch = tmp_path / "patch.yaml"
    patch.write_text(suggested(capsys, log, "patch"))
    assert "ServiceAccount/heist/planner: never used" in patch.read_text()

    kubectl = [
        str(lookup.path_of("kubectl")), "patch", "--local", "-f", str(heist_week.CREW),
        "--type", "json", "--patch-file", str(patch), "-o", "yaml",
    ]  # fmt: skip
    patched = subprocess.run(kubectl, capture_output=True, text=True, check=True, timeout=60).stdout
    spec: dict[str, Any] = yaml.safe_load(patched)["spec"]
    assert [s["name"] for s in spec["subjects"]] == ["hacker", "safecracker"]
    assert sorted(spec["tools"]["allow"]) == [
        "calculator",
        "database_query",
        "file_reader",
        "simulation_data",
    ]
    assert spec["expiresAt"] == "2030-01-01T00:00:00Z"

    manifest = tmp_path / "crew.yaml"
    manifest.write_text(patched)
    replay = json.loads(told(capsys, "audit", "replay", str(log), "--policy", str(manifest), "-o", "json"))
    assert (replay["changes"], replay["different"]) == ([], 0)
    assert replay["equal"] > 400
