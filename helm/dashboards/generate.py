"""Writes the dashboards of the chart from the code beside this file. `make generate` runs it.

usage: python helm/dashboards/generate.py [--check]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from dashboards import governance, health, usage

FOLDER = Path(__file__).parents[1] / "toolcrib" / "dashboards"


def main() -> int:
    """Write the dashboards, or with --check say which differ."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if a dashboard is out of date")
    check = parser.parse_args().check
    FOLDER.mkdir(parents=True, exist_ok=True)
    stale = []
    for name, text in dashboards().items():
        file = FOLDER / name
        if file.exists() and file.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if not check:
            file.write_text(text, encoding="utf-8")
    if check and stale:
        sys.stderr.write(f"out of date, run `make generate`: {', '.join(stale)}\n")
        return 1
    return 0


def dashboards() -> dict[str, str]:
    """Every dashboard: file name → JSON. The file is called as the uid."""
    found = {}
    for made in (governance.dashboard(), usage.dashboard(), health.dashboard()):
        built = made.build()
        found[f"{built.uid}.json"] = json.dumps(built, cls=JSONEncoder, indent=2, sort_keys=True) + "\n"
    return found


if __name__ == "__main__":
    raise SystemExit(main())
