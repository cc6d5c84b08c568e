"""The local mode with more tools than a namespace may have: the oldest are used, the others are named, all stays alive."""

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from local_mode import LocalMode
from manifests import binding, tool
from realparts.processes import wait_until

GRANT = binding("reader", ["crowd:use"], "crowd")


def manifest(number: int, **spec: Any) -> dict[str, Any]:
    body = {
        "description": f"Looks up record number {number}",
        "scopes": ["crowd:use"],
        "backend": {"none": {}},
    }
    return tool(f"t{number:05}", "crowd", **body | spec)


def folder(path: Path, tools: list[dict[str, Any]]) -> Path:
    """Manifests in files of 500: their order is that of their age."""
    path.mkdir()
    (path / "00-grant.yaml").write_text(json.dumps(GRANT))
    for start in range(0, len(tools), 500):
        (path / f"t{start:05}.yaml").write_text("\n---\n".join(map(json.dumps, tools[start : start + 500])))
    return path


def total(local: LocalMode) -> int:
    token = local.token("crowd/reader")
    answer = httpx.get(
        local.url, headers={"Authorization": f"Bearer {token}"}, trust_env=False, timeout=60
    ).json()
    return int(answer["total_available"])


@pytest.mark.parametrize(
    ("count", "options"),
    [(2_000, ("--quota-tools", "1000")), pytest.param(10_000, (), marks=pytest.mark.long, id="10000")],
)
def test_thousands_of_tools_are_half_used_and_the_rest_refused_with_the_numbers(
    tmp_path: Path, count: int, options: tuple[str, ...]
) -> None:
    tools = folder(tmp_path / "crowd", [manifest(n) for n in range(count)])
    with LocalMode(tmp_path, tools, extra=options, patience=300) as local:
        said = " ".join(local.output.split())
        found = re.search(
            rf"{count // 2:,} tools refused: QuotaExceeded: namespace crowd has {count:,} tools of [\d.]+ MiB;"
            rf" {count // 2:,} tools and 64 MiB are allowed\. Older tools keep their place",
            said,
        )
        assert found is not None, local.output
        assert "registry healthy, revision" in said
        assert total(local) == count // 2


def test_removing_an_older_manifest_makes_room_for_the_next(tmp_path: Path) -> None:
    tools = folder(tmp_path / "crowd", [])
    for number in range(4):
        (tools / f"t{number}.yaml").write_text(json.dumps(manifest(number)))
    with LocalMode(tmp_path, tools, extra=("--quota-tools", "2")) as local:
        token = local.token("crowd/reader")
        names = lambda: set(local.names(token))  # noqa: E731
        assert names() == {"t00000", "t00001"}
        (tools / "t0.yaml").unlink()
        wait_until(lambda: names() == {"t00001", "t00002"}, timeout=30)
        (tools / "t9.yaml").write_text(json.dumps(manifest(9)))
        wait_until(
            lambda: "Tool crowd/t00009: metadata.namespace: Accepted=False/QuotaExceeded" in local.output,
            timeout=30,
        )
        assert names() == {"t00001", "t00002"}


def test_large_tools_are_bounded_by_their_bytes(tmp_path: Path) -> None:
    large = {"type": "object", "description": "x" * 60_000}
    tools = folder(tmp_path / "crowd", [manifest(n, inputSchema=large) for n in range(40)])
    with LocalMode(tmp_path, tools, extra=("--quota-bytes", "1Mi")) as local:
        assert total(local) == 17  # of 61 KB each
        assert "namespace crowd has 40 tools of 2.3" in " ".join(local.output.split())
