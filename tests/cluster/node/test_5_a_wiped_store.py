"""Thousands of tools, from here on, since every pod that starts takes them over: the store that lost them is filled again."""

import time

import pytest

import figures
from node_cluster import NodeCluster

pytestmark = pytest.mark.node


def test_a_wiped_weaviate_volume_is_filled_again(cluster: NodeCluster, safecracker: str) -> None:
    tools = cluster.create_catalog()
    cluster.node.until(lambda: cluster.indexed() == tools, timeout=300, interval=1)
    cluster.wipe_weaviate()
    began = time.monotonic()
    cluster.node.until(lambda: cluster.indexed() == tools, timeout=300, interval=0.5)
    figures.note(f"rebuild after the store was wiped, {tools} tools", f"{time.monotonic() - began:.1f} s")
    cluster.node.until(
        lambda: cluster.search(safecracker, "compute an expression")["search_mode"] == "hybrid",
        timeout=60,
        interval=0.5,
    )
