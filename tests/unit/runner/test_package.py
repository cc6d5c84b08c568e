"""The package as others see it: exported names, the README, and where each SDK is imported."""

import re
from pathlib import Path

from prometheus_client import CollectorRegistry

import toolcrib_runner
from toolcrib_runner import results


def test_all_exported_names_exist_and_are_sorted() -> None:
    assert all(hasattr(toolcrib_runner, name) for name in toolcrib_runner.__all__)
    assert toolcrib_runner.__all__ == sorted(toolcrib_runner.__all__)


def test_the_readme_lists_every_metric_and_exit_code() -> None:
    readme = (Path(__file__).parents[3] / "agent_runner" / "README.md").read_text()
    numbers = CollectorRegistry()
    toolcrib_runner.RunnerMetrics(numbers)
    for family in numbers.collect():
        name = family.name + ("_total" if family.type == "counter" else "")
        assert f"`{name}`" in readme
    for code in results.EXIT_CODES.values():
        assert re.search(rf"^\| {code}\b", readme, re.MULTILINE)


def test_each_sdk_is_imported_in_its_adapter_alone() -> None:
    package = Path(toolcrib_runner.__file__).parent
    imported: dict[str, set[str]] = {"openai": set(), "httpx2": set()}
    for module in package.rglob("*.py"):
        for sdk, modules in imported.items():
            if re.search(rf"^(import|from) {sdk}\b", module.read_text(), re.MULTILINE):
                modules.add(str(module.relative_to(package)))
    assert imported == {
        "openai": {"adapters/openai_model.py"},
        "httpx2": {"adapters/client_credentials.py", "adapters/openai_model.py"},
    }
