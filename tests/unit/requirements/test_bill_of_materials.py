"""The image's bill of materials names files of others in the wheel: Swagger UI and the embedding model."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
ASSETS = ROOT / "cli/toolcrib_cli/local/api_docs/assets"
MODEL = ROOT / "registry_api/toolcrib_registry/model"
LICENCE = [{"license": {"id": "Apache-2.0"}}]


def program() -> Any:
    spec = importlib.util.spec_from_file_location("sbom", ROOT / "requirements" / "sbom.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def digests(component: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["hashes"][0]["content"] for each in component["components"]}


def of(*files: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_swagger_ui_is_listed_with_version_licence_and_every_file_of_it() -> None:
    found = program().swagger_ui(ROOT)

    assert re.search(
        rf"Swagger UI {re.escape(found['version'])} ", (ROOT / "docs/decisions/0070-api-pages.md").read_text()
    )
    assert found["purl"] == f"pkg:npm/swagger-ui-dist@{found['version']}"
    assert found["licenses"] == LICENCE
    assert digests(found) == of(
        *(file for file in ASSETS.iterdir() if file.name not in ("index.html", "start.js"))
    )


def test_the_embedding_model_is_listed_with_its_digest_its_licence_and_what_it_was_made_of() -> None:
    found = program().embedding_model(ROOT)

    assert digests(found) == of(MODEL / "model.onnx", MODEL / "tokenizer.json")
    assert found["version"] == digests(found)["model.onnx"]
    assert found["licenses"] == LICENCE
    assert [each["name"] for each in found["pedigree"]["ancestors"]] == [
        "sentence-transformers/all-MiniLM-L6-v2"
    ]


def test_a_model_that_its_card_does_not_describe_is_no_bill_of_materials(tmp_path: Path) -> None:
    folder = tmp_path / MODEL.relative_to(ROOT)
    folder.mkdir(parents=True)
    for name in ("MODEL_CARD.md", "tokenizer.json"):
        shutil.copy(MODEL / name, folder)
    (folder / "model.onnx").write_bytes(b"another")

    with pytest.raises(ValueError, match="another model"):
        program().embedding_model(tmp_path)


def test_both_are_parts_of_the_whole_bill(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sbom = program()

    def listed(command: list[str], **_: Any) -> Any:
        text = (
            '{"metadata": {"component": {"name": "toolcrib"}}, "components": []}'
            if "cyclonedx_py" in command
            else "3.11"
        )
        return sbom.subprocess.CompletedProcess(command, 0, text, "")

    monkeypatch.setattr(sbom.subprocess, "run", listed)
    for part in (ASSETS, MODEL):
        (tmp_path / part.relative_to(ROOT)).parent.mkdir(parents=True)
        (tmp_path / part.relative_to(ROOT)).symlink_to(part)
    shutil.copy(ROOT / "core/toolcrib/version.py", tmp_path)

    names = {each["name"] for each in sbom.bill("python", tmp_path, tmp_path)["components"]}

    assert {"swagger-ui-dist", "toolcrib-embedding-model", "python"} <= names
