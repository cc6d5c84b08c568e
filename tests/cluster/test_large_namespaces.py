"""A namespace with more and larger tools than its quota, on a real API server: used or refused clearly, and all parts live on."""

import json
import os
import random
import re
import string
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import UNPROVEN, Cluster, counter
from manifests import manifest
from realparts.processes import Child, wait_until
from realparts.required import require_real

pytestmark = [pytest.mark.real, pytest.mark.long]

TOOLS = "/apis/toolcrib.dev/v1alpha1/namespaces/crowd/tools"
COUNT, SIZE = int(os.environ.get("TOOLCRIB_LARGE_TOOLS", "300")), 100_000
QUOTA = 64 if COUNT >= 1_000 else 20
"""MiB; with fewer tools a smaller one than the default, so that some are refused."""
VALUES = yaml.safe_load((Path(__file__).parents[2] / "helm" / "toolcrib" / "values.yaml").read_text())


def text(length: int, seed: int) -> str:
    """Nothing that a compression could make much of."""
    return "".join(random.Random(seed).choices(string.ascii_letters + string.digits + " ", k=length))


def schema(size: int, seed: int) -> dict[str, Any]:
    parts = size // 1_000
    return {
        "type": "object",
        "properties": {f"p{n}": {"type": "string", "description": text(950, seed + n)} for n in range(parts)},
    }


def tool(number: int) -> dict[str, Any]:
    half = SIZE // 2
    return manifest(
        "Tool",
        f"t{number:04}",
        "crowd",
        description=f"Looks up record number {number}",
        scopes=["crowd:use"],
        inputSchema=schema(half, 1_000 * number),
        outputSchema=schema(half, 1_000 * number + 500),
        backend={"none": {}},
    )


def limit(part: str) -> int:
    """The chart's memory limit in bytes."""
    given = str(VALUES[part]["resources"]["limits"]["memory"])
    number, unit = re.fullmatch(r"(\d+)(Mi|Gi)", given).groups()  # type: ignore[union-attr]
    return int(number) << {"Mi": 20, "Gi": 30}[unit]


def memory(child: Child, field: str) -> int:
    """`VmRSS`, or `VmHWM`: the most it ever was."""
    status = Path(f"/proc/{child.pid}/status").read_text()
    return int(re.search(rf"{field}:\s+(\d+) kB", status)[1]) << 10  # type: ignore[index]


def verdicts(cluster: Cluster) -> list[tuple[str, str, str]]:
    """Name, reason and message of each tool's Accepted condition, page by page."""
    found: list[tuple[str, str, str]] = []
    token = ""
    while True:
        query = {"limit": "50"} | ({"continue": token} if token else {})
        page = cluster.api.client.get(TOOLS, params=query, timeout=60).json()
        for item in page["items"]:
            for c in item.get("status", {}).get("conditions", ()):
                if c["type"] == "Accepted":
                    found.append((item["metadata"]["name"], c["reason"], c["message"]))
        token = page["metadata"].get("continue") or ""
        if not token:
            return found


@pytest.fixture
def cluster(fresh_programs: None) -> Iterator[Cluster]:
    require_real("kube-apiserver", "etcd", "kubectl")
    with Cluster(
        store="embedded", embedder="none", operator_flags=(*UNPROVEN, f"--quota-bytes={QUOTA}Mi")
    ) as running:
        running.kubectl("create", "namespace", "crowd")
        yield running


def test_tools_of_100_kb_are_used_as_far_as_they_fit_and_everything_lives_on(
    cluster: Cluster,
) -> None:
    operator, registry = cluster.operators[0], cluster.replicas[0].child
    before = memory(operator, "VmRSS")

    def create(number: int) -> int:
        answer = cluster.api.client.post(TOOLS, json=tool(number), timeout=60)
        assert answer.status_code == 201, answer.text[:500]
        return len(json.dumps(tool(number)["spec"], separators=(",", ":")))

    with ThreadPoolExecutor(4) as pool:
        sizes = list(pool.map(create, range(COUNT)))

    def judged() -> bool:
        return operator.running and registry.running and len(verdicts(cluster)) == COUNT

    wait_until(judged, timeout=600, interval=2)

    def settled() -> bool:
        reasons = Counter(reason for _, reason, _ in verdicts(cluster))
        used = counter(cluster.replicas[0].metrics(), "toolcrib_catalog_tools")
        return reasons["Accepted"] == used and reasons["Accepted"] + reasons["QuotaExceeded"] == COUNT

    wait_until(settled, timeout=300, interval=2)
    found = verdicts(cluster)
    used = sum(reason == "Accepted" for _, reason, _ in found)
    mean = sum(sizes) / COUNT
    assert used * mean <= QUOTA << 20
    assert (used + 8) * mean >= QUOTA << 20, f"{used} tools of {mean:.0f} bytes"
    refused = [message for _, reason, message in found if reason == "QuotaExceeded"]
    assert all(
        f"; 5,000 tools and {QUOTA} MiB are allowed. Older tools keep their place" in m for m in refused
    )
    # the last one was told of all
    assert any(m.startswith(f"namespace crowd has {COUNT:,} tools of ") for m in refused)
    bound = COUNT * (12 * 1024 + 3 * mean)
    print(f"operator {memory(operator, 'VmRSS') >> 20} MiB, most {memory(operator, 'VmHWM') >> 20}; bound {bound / 2**20:.0f} more "
          f"than {before >> 20}; registry most {memory(registry, 'VmHWM') >> 20}")  # fmt: skip
    assert memory(operator, "VmRSS") - before <= bound
    assert memory(operator, "VmHWM") <= limit("operator")
    assert memory(registry, "VmHWM") <= limit("registry")

    operator.stop()
    following = cluster.add_operator()
    published = lambda: counter(following_metrics(following), "toolcrib_catalog_tools")  # noqa: E731
    wait_until(lambda: published() == used, timeout=300, interval=1)
    print(f"takeover: most {memory(following, 'VmHWM') >> 20} MiB")
    assert memory(following, "VmHWM") <= limit("operator")
    assert sorted(verdicts(cluster)) == sorted(found)


def following_metrics(operator: Child) -> str:
    import httpx

    return httpx.get(f"{operator.url}/metrics", trust_env=False, timeout=30).text  # type: ignore[attr-defined]
