"""The operator's own rules of import: each SDK in its module, deciding apart from acting, the environment in main."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[3] / "operator/toolcrib_operator"
MODULES = {str(p.relative_to(PACKAGE)): p for p in PACKAGE.rglob("*.py")}


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


@pytest.mark.parametrize(
    ("sdk", "homes"),
    [
        ("kubernetes", {"adapters/kube.py"}),
        ("urllib3", {"adapters/kube.py"}),
        ("kopf", {"watches/recorder.py"}),
        ("prometheus_client", {"metrics.py"}),
        ("aiohttp", {"adapters/replica_http.py", "health.py", "main.py"}),
    ],
)
def test_an_sdk_is_imported_only_in_the_modules_named_for_it(sdk: str, homes: set[str]) -> None:
    users = {name for name, path in MODULES.items() if any(i.split(".")[0] == sdk for i in imports(path))}
    assert users == homes


def test_what_decides_knows_nothing_of_what_acts() -> None:
    allowed = tuple(f"toolcrib_operator.{room}" for room in ("kinds", "objects", "packing", "settings"))
    for name, path in MODULES.items():
        if name.startswith("kinds/"):
            ours = {i for i in imports(path) if i.startswith("toolcrib_operator")}
            assert all(i.startswith(allowed) for i in ours), name
            assert not imports(path) & {"asyncio", "time", "os", "socket", "threading"}, name


def test_the_loop_and_everything_below_it_needs_neither_adapters_nor_main() -> None:
    above = {"main.py", "state.py", "metrics.py", "health.py"}
    for name, path in MODULES.items():
        if name in above or name.startswith(("adapters/", "watches/")):
            continue
        assert not {
            i for i in imports(path) if i.startswith(("toolcrib_operator.adapters", "toolcrib_operator.main"))
        }


def test_only_main_reads_the_environment() -> None:
    readers = {
        name
        for name, path in MODULES.items()
        if "os.environ" in path.read_text() or "getenv" in path.read_text()
    }
    assert readers == {"main.py"}
