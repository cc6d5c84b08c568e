"""Resident memory after lists, in a separate process that starts as the operator does."""

import subprocess
import sys
from pathlib import Path

import pytest

from realparts.required import require_file

pytestmark = pytest.mark.real

BASE, FACTOR = 12 << 10, 3
"""The bound of a tool in bytes, as in `bench/operator_memory.py`."""
ALLOCATOR = 8 << 20

STARTED = """
import contextlib, sys
from toolcrib_operator import main
with contextlib.suppress(SystemExit):  # there is no such cluster
    main.main(["--kubeconfig", "/nowhere", "--registry-url", "http://127.0.0.1:1", "--token-file", "/nowhere"])
"""

LISTED = """
import orjson
from concurrent.futures import ThreadPoolExecutor
from toolcrib_operator.kinds.table import entry_of

def tool(number):
    names = [f"{k:04}{number * 7919 + k * 104729:08}" for k in range(2_900)]
    schema = {"type": "object", "properties": {name: {} for name in names}}
    noted = {"f:properties": {f"f:{name}": {".": {}} for name in names}}
    spec = {"description": "x", "scopes": ["sizes:use"], "inputSchema": schema, "outputSchema": schema, "backend": {"none": {}}}
    managed = [{"fieldsV1": {"f:spec": {"f:inputSchema": noted, "f:outputSchema": noted}}}]
    return {"apiVersion": "toolcrib.dev/v1alpha1", "kind": "Tool", "spec": spec,
            "metadata": {"name": f"t{number}", "namespace": "sizes", "uid": f"u{number}", "resourceVersion": "1",
                         "managedFields": managed}}

def page(first):
    items = orjson.loads(orjson.dumps([tool(n) for n in range(first, first + 10)]))
    return [entry_of("Tool", item) for item in items]

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

threads = [ThreadPoolExecutor(1) for _ in range(12)]  # as many as requests have
kept = page(0)  # loads and caches what no tool accounts for
before = resident()
for thread, first in zip(threads, range(10, 130, 10)):
    kept += thread.submit(page, first).result()
assert all(entry.kept for entry in kept)
print(resident() - before, sum(entry.size for entry in kept[10:]), len(kept) - 10)
"""


def test_lists_of_tools_with_thousands_of_names_leave_no_more_memory_in_use_than_the_bound() -> None:
    require_file(Path("/proc/self/statm"), "resident memory is read from it")
    done = subprocess.run(
        [sys.executable, "-c", STARTED + LISTED], capture_output=True, text=True, timeout=120, check=True
    )
    used, written, count = map(int, done.stdout.split())
    print(f"{used / count / 1024:.0f} KiB a tool of {written / count / 1024:.0f} KiB")
    assert used <= count * BASE + FACTOR * written + ALLOCATOR
