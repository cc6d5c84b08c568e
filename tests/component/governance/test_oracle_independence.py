"""The oracle shares no code with what it judges."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import oracle.decisions

pytestmark = pytest.mark.guarantee

FOLDER = Path(oracle.decisions.__file__).parent
JUDGED = {
    "toolcrib.authorizer",
    "toolcrib.view",
    "toolcrib.snapshot",
    "toolcrib.names",
    "toolcrib.schemas.patterns",
}
VERDICT = ("decisions", "naming", "worlds")
"""What decides and what draws worlds: these know nothing of the product at all."""


def imported(module: Path) -> Iterator[str]:
    """Every module named in an import statement, wherever it stands."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_the_oracle_imports_nothing_of_the_product_but_its_own_folder() -> None:
    for name in VERDICT:
        foreign = {
            m
            for m in imported(FOLDER / f"{name}.py")
            if m.split(".")[0] not in ("typing", "random", "hashlib", "oracle")
        }
        assert not foreign
        assert {m.split(".")[1] for m in imported(FOLDER / f"{name}.py") if m.startswith("oracle.")} <= set(
            VERDICT
        )


def test_nothing_in_its_folder_imports_the_authorizer_or_what_is_made_of_it() -> None:
    modules = sorted(FOLDER.glob("*.py"))

    assert len(modules) > 8
    for module in modules:
        found = set(imported(module))
        assert not {m for m in found for judged in JUDGED if f"{m}.".startswith(f"{judged}.")}, module.name
        assert not any("import_module" in name or name == "importlib" for name in found)
