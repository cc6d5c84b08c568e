"""The layout of the repository keeps what it promises (docs/decisions/0001)."""

import json
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = (
    "toolcrib",
    "toolcrib_operator",
    "toolcrib_registry",
    "toolcrib_runner",
    "toolcrib_cli",
    "toolcrib_client",
)
MOST_LINES = 400
"""Of a module, tests too. Generated data and locks do not count."""
MOST_LINES_OF_LONGER = 600
LONGER = {
    "tests/cluster/test_access_requests.py",
    "tests/cluster/test_admission_ways.py",
    "tests/cluster/test_operator_cluster.py",
    "tests/cluster/test_revocation.py",
    "tests/component/audit/test_files.py",
    "tests/component/calls/test_call_assertions.py",
    "tests/component/calls/test_confirmations.py",
    "tests/component/client/test_client.py",
    "tests/component/http/test_access_review.py",
    "tests/component/identity/test_fail_closed_matrix.py",
    "tests/component/local/test_up.py",
    "tests/component/runner/test_dynamic_agent.py",
    "tests/component/runner/test_task_loop.py",
    "tests/component/search/test_embedders.py",
    "tests/component/search/test_weaviate.py",
    "tests/component/sessions/test_runs.py",
    "tests/component/sessions/test_sessions.py",
    "tests/component/watch/test_stream.py",
    "tests/contract/test_counters.py",
    "tests/contract/test_models_equal_schema.py",
    "tests/test_docs.py",
    "tests/unit/cli/imports/test_imports.py",
    "tests/unit/cli/imports/test_openapi.py",
    "tests/unit/cli/test_access.py",
    "tests/unit/cli/test_audit.py",
    "tests/unit/cli/test_commands.py",
    "tests/unit/cli/test_doctor.py",
    "tests/unit/core/access/test_review.py",
    "tests/unit/operator/admission/test_policies_unread.py",
    "tests/unit/operator/kinds/test_verdicts.py",
    "tests/unit/operator/replicas/test_imports.py",
    "tests/unit/operator/test_loop.py",
    "tests/unit/registry/search/test_searcher.py",
}
"""Modules of tests that were above 400 lines when that bound came: a ratchet, no name is added."""
MACHINE_PATHS = re.compile(r"/(?:home|Users|root|work|opt/wheels)/[a-z]")
ADDRESSES = re.compile(r"https?://|(?:^|\s)-(?:i|f)\s|--(?:extra-)?index-url|--find-links|--trusted-host")


def tracked() -> list[Path]:
    """What git holds, or will hold: new files too, unless ignored."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    return [ROOT / line for line in listed.splitlines() if (ROOT / line).is_file()]


def test_no_package_marker_stands_where_it_would_shadow_a_module() -> None:
    """`operator/__init__.py` would hide Python's own `operator`, and even `python -m venv` would fail here."""
    assert not (ROOT / "operator" / "__init__.py").exists()
    assert list((ROOT / "tests").rglob("__init__.py")) == []


def test_python_finds_its_own_modules_from_the_root_of_the_repository() -> None:
    code = "import collections, operator, venv; print(operator.itemgetter)"

    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert "operator.itemgetter" in done.stdout


def names_by_room(readme: str) -> dict[str, set[str]]:
    """What the rows of a README's tables name, by the room in their first cell; a row without one goes on with the last."""
    named: dict[str, set[str]] = {}
    rooms: list[str] = []
    for row in re.findall(r"^\|.*\|$", readme, re.MULTILINE):
        first = row.split("|")[1].strip()
        rooms = re.findall(r"`([^`]+)`", first) if first else rooms
        for room in (*rooms, ""):
            named.setdefault(room, set()).update(re.findall(r"`([^`]+)`", row))
    return named


def rooms_of(folder: Path) -> set[str]:
    """The modules of a folder, and its folders with a slash."""
    modules = {p.stem for p in folder.glob("*.py")} - {"__init__"}
    return modules | {p.parent.name + "/" for p in folder.glob("*/__init__.py")}


def is_named(room: str, named: set[str]) -> bool:
    """By its name, or by a pattern: `checks_…`."""
    return room in named or any(n.endswith("…") and room.startswith(n[:-1]) for n in named)


@pytest.mark.parametrize("package", PACKAGES)
def test_the_folder_table_of_a_package_names_every_room_and_the_row_of_a_room_what_is_in_it(
    package: str,
) -> None:
    """A folder within a room is named as a whole: its modules need no name in the table."""
    (folder,) = (p for p in ROOT.glob(f"*/{package}") if (p / "py.typed").exists())
    named = names_by_room((folder.parent / "README.md").read_text())
    rooms = rooms_of(folder)
    inside = {f"{r}{m}": (m, r) for r in rooms if r.endswith("/") for m in rooms_of(folder / r)}

    assert {room for room in rooms if not is_named(room, named[""])} == set()
    assert {path for path, (module, room) in inside.items() if not is_named(module, named[room])} == set()


def test_unit_tests_stand_in_the_tree_of_what_they_test() -> None:
    unit = ROOT / "tests" / "unit"
    packages = {"core": "core/toolcrib", "operator": "operator/toolcrib_operator", "cli": "cli/toolcrib_cli",
                "registry": "registry_api/toolcrib_registry", "runner": "agent_runner/toolcrib_runner"}  # fmt: skip
    strays = [
        str(room.relative_to(unit))
        for short, package in packages.items()
        for room in (unit / short).iterdir()
        if room.is_dir() and room.name != "__pycache__" and not (ROOT / package / room.name).is_dir()
    ]

    assert list(unit.glob("*.py")) == []
    assert strays == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_is_importable_and_typed(package: str) -> None:
    module = import_module(package)

    assert module.__file__ is not None
    assert (Path(module.__file__).parent / "py.typed").exists()


def test_no_module_grows_beyond_what_one_reads_in_one_go() -> None:
    sizes = {p.relative_to(ROOT): len(p.read_text().splitlines()) for p in tracked() if p.suffix == ".py"}

    longer = {str(path): size for path, size in sizes.items() if size > MOST_LINES}
    assert {
        path: size for path, size in longer.items() if path not in LONGER or size > MOST_LINES_OF_LONGER
    } == {}
    assert LONGER - set(longer) == set(), "shorter now: take its name out"


def test_no_file_holds_a_merge_that_was_not_finished() -> None:
    marks = re.compile(r"^(?:<{7} |>{7} |={7}$)", re.MULTILINE)
    texts = [
        p
        for p in tracked()
        if p.suffix in (".py", ".md", ".yaml", ".yml", ".toml", ".json", ".tpl", ".txt", "")
    ]

    assert [str(p.relative_to(ROOT)) for p in texts if marks.search(p.read_text(errors="replace"))] == []


def test_no_file_names_a_place_on_somebodys_machine() -> None:
    found = []
    for path in tracked():
        relative = path.relative_to(ROOT)
        if relative == Path(__file__).relative_to(ROOT) or relative.parts[:2] == ("examples", "catalog"):
            continue
        if relative.parts[:3] == ("bench", "search", "subset"):
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        found += [f"{relative}: {match.group()}" for match in MACHINE_PATHS.finditer(text)]

    assert found == []


PEERS = "tests/support/mcp_peers"


@pytest.mark.parametrize(
    "name",
    [
        *(f"requirements/{name}.txt" for name in ("bootstrap", "build", "go", "runtime", "dev")),
        *(f"{PEERS}/python/{name}.txt" for name in ("current", "earlier")),
    ],
)
def test_dependencies_are_locked_with_hashes_and_without_addresses(name: str) -> None:
    text = (ROOT / name).read_text()
    entries = [e for e in text.replace("\\\n", " ").splitlines() if e.strip() and not e.startswith("#")]

    assert entries
    for entry in entries:
        assert re.match(r"^[a-zA-Z0-9._-]+(\[[a-z,]+\])?==\S+ ", entry), entry[:80]
        assert "--hash=sha256:" in entry, entry[:80]
    assert ADDRESSES.search(text) is None


def test_packages_of_node_are_locked_with_hashes_and_without_addresses() -> None:
    locked = json.loads((ROOT / PEERS / "npm" / "package-lock.json").read_text())["packages"]
    packages = {name: entry for name, entry in locked.items() if name}

    assert packages
    assert [
        name for name, entry in packages.items() if not entry.get("integrity", "").startswith("sha512-")
    ] == []
    assert [name for name, entry in packages.items() if "resolved" in entry] == []


def test_everything_needed_at_run_time_is_locked_alike_for_developers() -> None:
    def pins(name: str) -> set[str]:
        return set(re.findall(r"^\S+==\S+", (ROOT / "requirements" / name).read_text(), re.MULTILINE))

    assert pins("runtime.txt") <= pins("dev.txt")


PROMISES = (
    "governance/", "fail_closed", "non_interference", "oracle", "revocation", "admission_table", "admission_ways",
    "access_prediction", "cli/prediction/test_outcome", "agreement", "core/audit/", "cli/test_audit",
    "component/audit/test_files", "component/audit/test_load",
)  # fmt: skip


def test_what_proves_a_promise_of_security_is_marked_as_a_guarantee() -> None:
    """Continuous integration never runs these again after a failure (docs/contributing/ci.md)."""
    modules = [p for p in tracked() if p.name.startswith("test_") and p.suffix == ".py"]
    proving = [p for p in modules if any(part in str(p.relative_to(ROOT)) for part in PROMISES)]
    marked = [
        p for p in proving if re.search(r"^pytestmark = .*mark\.guarantee", p.read_text(), re.MULTILINE)
    ]

    assert {part for part in PROMISES if not any(part in str(p) for p in marked)} == set()
    assert [str(p.relative_to(ROOT)) for p in proving if p not in marked] == []


GUARANTEES = {
    "make fresh-machine-test": """
        fresh/test_1_what_the_readme_shows.py
    """,
    "make test": """
        component/audit/test_evidence.py component/audit/test_files.py component/audit/test_replay_command.py
        component/audit/test_replay_of_a_registry.py component/audit/test_suggest_command.py component/governance/test_agreement.py
        component/governance/test_canaries.py component/governance/test_non_interference.py component/governance/test_oracle_independence.py
        component/governance/test_revocation_in_flight.py component/governance/test_revocation_of_reads.py
        component/governance/test_search_subset.py component/governance/test_suspension.py component/governance/test_territory.py
        component/governance/test_time.py component/identity/test_fail_closed_matrix.py component/local/test_hosts.py component/local/test_try.py
        component/mcp/test_as_every_call.py component/mcp/test_lists_by_caller.py component/mcp/test_replicas.py
        component/mcp/test_revocation_in_flight.py component/mcp/test_servers_away.py component/memory/test_through_a_registry.py
        unit/bench/test_log_growth.py unit/cli/memory/test_caller.py unit/cli/memory/test_settings.py unit/cli/test_audit.py
        unit/cli/test_hosts_file.py unit/cli/test_three_way_merge.py unit/core/audit/test_anchors.py unit/core/audit/test_decider_version.py
        unit/core/audit/test_mac.py unit/core/audit/test_parts_of_servers.py unit/core/audit/test_policy_records.py
        unit/core/audit/test_suggestions.py unit/core/test_authorizer_chain.py unit/operator/kinds/test_denials_held.py
        unit/operator/kinds/test_running.py unit/operator/workloads/test_tasks_that_wait.py unit/registry/audit/test_folding.py
        unit/registry/search/test_view_search.py
    """,
    "make test + make test-long": """
        component/audit/test_load.py component/search/test_cut_by_patterns.py
    """,
    "make test + make test-long + make test-real": """
        component/governance/test_oracle.py
    """,
    "make test + make test-real": """
        component/audit/test_replay.py component/audit/test_suggestions.py component/calls/test_argument_cost.py component/calls/test_arguments.py
        component/calls/test_call_assertions.py component/calls/test_compile_time.py component/governance/test_hidden_is_absent.py
        component/mcp/test_hidden_offerings.py component/search/test_bad_input.py contract/test_memories.py unit/ci/test_suites.py
        unit/cli/imports/test_allowlists.py unit/cli/imports/test_imports.py unit/cli/imports/test_openapi_hostile.py
        unit/cli/memory/test_summary.py unit/cli/prediction/test_outcome.py unit/cli/test_doctor.py unit/core/audit/test_chain.py
        unit/core/audit/test_consent.py unit/core/audit/test_redaction.py unit/core/imports/test_definitions.py unit/core/imports/test_plan.py
        unit/core/lint/test_hidden_text.py unit/core/resources/test_credential_hosts.py unit/core/schemas/test_objects.py
        unit/core/schemas/test_safety.py unit/core/telemetry/test_labels.py unit/core/test_accounts.py unit/core/test_authorizer.py
        unit/core/test_authorizer_oracle.py unit/core/test_identity_any_token.py unit/core/test_model_names.py unit/core/test_names.py
        unit/core/test_names_held.py unit/core/test_snapshot.py unit/core/test_values.py unit/examples/test_calculator.py
        unit/operator/kinds/test_hidden_text.py unit/operator/kinds/test_quotas.py unit/operator/kinds/test_service.py
        unit/operator/replicas/test_older_replicas.py unit/operator/test_large_schemas.py unit/registry/calls/test_applied_patterns.py
        unit/registry/calls/test_bulkheads.py unit/registry/calls/test_echoed_secrets.py unit/registry/mcp/test_messages.py
        unit/registry/mcp/test_mirrors.py unit/registry/mcp/test_tool_list.py unit/registry/outbound/test_guard.py
        unit/registry/search/test_postings.py unit/registry/search/test_ranking.py unit/registry/upstream/test_events.py
        unit/runner/session/test_functions.py unit/runner/test_arguments.py unit/runner/test_discovery.py
    """,
    "make test-long": """
        chart/test_agents_of_a_release.py cluster/test_access_prediction.py cluster/test_admission_missing.py
    """,
    "make test-long + make test-real": """
        cluster/test_revocation.py cluster/test_running_agents.py
    """,
    "make test-real": """
        cluster/test_admission_imports.py cluster/test_admission_table.py cluster/test_admission_ways.py cluster/test_agents.py
        cluster/test_canaries.py
    """,
}
"""Commands and the modules of tests/ whose guarantees they run."""
COLLECTING = """
import json, sys
import pytest
class Collector:
    def show(self, items):
        import suites  # imports hypothesis, which pytest imports first
        for item in items:
            marks = {m.name for m in item.iter_markers()}
            if marks & {"guarantee", "property"}:
                print("::", json.dumps([item.nodeid.partition("::")[0], sorted(suites.commands(marks)), "slow" in marks]))
    def pytest_collection_finish(self, session): self.show(session.items)
    def pytest_deselected(self, items): self.show(items)
sys.exit(pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider", *sys.argv[1:]], plugins=[Collector()]))
"""


def test_each_guarantee_stands_where_the_list_says_and_runs_in_a_command() -> None:
    """A property is a guarantee by itself. What is too slow for `make test` stays there in a shorter form."""
    modules = [p for p in tracked() if p.name.startswith("test_") and p.suffix == ".py"]
    texts = [
        str(p)
        for p in modules
        if re.search(r"mark\.guarantee|^from hypothesis import .*given", p.read_text(), re.M)
    ]
    run = subprocess.run(
        [sys.executable, "-c", COLLECTING, *texts], cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests" / "support")},
    )  # fmt: skip
    rows = [json.loads(line[3:]) for line in run.stdout.splitlines() if line.startswith(":: ")]
    commands: dict[str, set[str]] = {}
    for module, targets, _ in rows:
        commands.setdefault(module.removeprefix("tests/"), set()).update(targets)

    assert run.returncode == 0, run.stdout
    assert [module for module, targets, _ in rows if not targets] == []
    assert sorted({module for module, _, slow in rows if slow}) == [], (
        "a guarantee is not slow: give it a short form"
    )
    assert {m: " + ".join(sorted(c)) for m, c in commands.items()} == {
        module: where for where, listed in GUARANTEES.items() for module in listed.split()
    }


@pytest.mark.parametrize("name", ["long", "node", "peers"])
def test_a_mark_that_chooses_files_is_written_in_each_of_them(name: str) -> None:
    """The Makefile hands pytest the files in which it finds one; what another file marked would never run."""
    here = [p for p in tracked() if p.suffix == ".py" and p.relative_to(ROOT).parts[0] == "tests"]
    marking = [p for p in here if re.search(rf"\bmark\.{name}\b|add_marker\(.{name}", p.read_text())]

    assert marking
    assert [str(p.relative_to(ROOT)) for p in marking if not p.name.startswith("test_")] == []
    written = [p for p in here if re.search(rf"\bmark\.{name}\b", p.read_text())]
    assert [p for p in written if f"pytest.mark.{name}" not in p.read_text()] == []
