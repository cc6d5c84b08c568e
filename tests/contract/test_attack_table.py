"""The page about the hostile suite names every class."""

import re
from pathlib import Path

from attack import run

PAGE = Path(__file__).parents[2] / "docs" / "contributing" / "attack.md"


def test_the_table_of_the_hostile_suite_has_a_row_for_each_class() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(attack.name for attack in run.ATTACKS)
