"""The modules of bench/search and bench/research for tests: they lie beside their commands and not in a package."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BENCH = Path(__file__).parents[2] / "bench"


@contextmanager
def loaded(*names: str) -> Iterator[list[Any]]:
    """The modules `names` of these folders; none of theirs stays loaded."""
    added = [str(BENCH / "search"), str(BENCH / "research"), str(BENCH)]
    before, path = set(sys.modules), list(sys.path)
    sys.path[:0] = added
    try:
        yield [importlib.import_module(name) for name in names]
    finally:
        # a command adds folders of its own
        sys.path[:] = path
        for name, module in list(sys.modules.items()):
            if name not in before and str(getattr(module, "__file__", "")).startswith(str(BENCH)):
                del sys.modules[name]


def write_set(
    data: Path,
    name: str,
    tools: Iterable[Mapping[str, Any]],
    queries: Iterable[Mapping[str, Any]] | None = None,
) -> Path:
    """One set in the data format under `data`; a catalog where there are no queries."""
    folder = data / name
    folder.mkdir(parents=True)
    (folder / "tools.jsonl").write_text("".join(json.dumps(t) + "\n" for t in tools))
    if queries is not None:
        (folder / "queries.jsonl").write_text("".join(json.dumps(q) + "\n" for q in queries))
    return folder
