"""The hardening checklist, from the table that `toolcrib doctor` goes by."""

from __future__ import annotations

from reference_pages.markdown import code, table

from toolcrib_cli.doctor.facts import Place
from toolcrib_cli.doctor.table import AREAS

_WHERE = {Place.CLUSTER: "cluster", Place.LOCAL: "local mode"}


def page() -> str:
    """A table for each area."""
    text = "# The hardening checklist\n\n`toolcrib doctor` checks these items: see [hardening](../guides/hardening.md).\n\n"
    for area, items in AREAS.items():
        rows = [
            (code(i.name), i.wanted, i.remedy, ", ".join(_WHERE[p] for p in Place if p in i.places))
            for i in items
        ]
        text += f"## {area}\n\n" + table(("item", "how it should be", "remedy", "checked in"), rows) + "\n"
    return text
