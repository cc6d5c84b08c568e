"""Tests that ask for something which the command that runs them does not install: `make check` fails where there is one.

    python tests/support/ci/needs.py     names each test, what it asks for and the mark that it lacks; 1 if there is one

Reads the source alone: whatever a test function reaches by name (its fixtures, the functions of its module, of conftest
and of tests/support), annotations apart. A mark of the test, its module, a row or a fixture's parameter will do.
"""

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

if __package__ in (None, ""):
    # Run as a file: Python put this folder first.
    sys.path.remove(str(Path(__file__).resolve().parent))
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import suites

TESTS = Path(__file__).resolve().parents[2]
SUPPORT = TESTS / "support"
REAL = frozenset({"real", "long", "node", "fresh", "peers"})
"""Marks of tests whose command makes, or finds, the real parts."""
PEERS = frozenset({"peers", "fresh"})
SOURCES: Mapping[str, frozenset[str]] = {
    "realparts.lookup.path_of": REAL,
    "realparts.redis_server.path_of": REAL,
    "realparts.postgres_server.path_of": REAL,
    "realparts.prometheus.path_of": REAL,
    "realparts.required.absent": REAL,
    "realparts.required.require": REAL,
    "mcp_peers.environments.python_of": PEERS,
}
"""Functions that find what not every command installs, and the marks of which one says that the command does."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Need:
    """A test without the mark that what it reaches asks for."""

    test: str
    source: str
    marks: frozenset[str]

    def __str__(self) -> str:
        return f"{self.test} reaches {self.source}: mark it `{'` or `'.join(sorted(self.marks))}`"


@dataclass
class Module:
    """A parsed file: what its names stand for, and what each of its functions and classes refers to."""

    name: str
    tree: ast.Module
    imports: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                self.imports |= {
                    a.asname or a.name.partition(".")[0]: (a.asname and a.name) or a.name.partition(".")[0]
                    for a in node.names
                }
            elif isinstance(node, ast.ImportFrom) and node.module:
                self.imports |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}

    @cached_property
    def definitions(self) -> dict[str, ast.stmt]:
        """Functions, classes and constants of the file, by name."""
        names: dict[str, ast.stmt] = {}
        for node in self.tree.body:
            if isinstance(node, Function | ast.ClassDef):
                names[node.name] = node
            elif isinstance(node, ast.Assign):
                names |= {target.id: node for target in node.targets if isinstance(target, ast.Name)}
        return names

    def references(self, node: ast.AST) -> Iterator[str]:
        """Full names of what a definition refers to; annotations do not count."""
        if isinstance(node, ast.Name):
            yield self.imports.get(node.id) or (
                f"{self.name}.{node.id}" if node.id in self.definitions else ""
            )
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in self.imports
        ):
            yield f"{self.imports[node.value.id]}.{node.attr}"
        for name, value in ast.iter_fields(node):
            if name not in ("annotation", "returns"):
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST):
                        yield from self.references(child)


class Tree:
    """All modules of tests/, read when they are first asked for."""

    def __init__(self, tests: Path = TESTS) -> None:
        self._tests = tests
        self._support: dict[str, Module | None] = {}
        self._sources: dict[str, frozenset[str]] = {}

    def needs(self) -> Iterator[Need]:
        """Each test that lacks a mark."""
        for path in sorted(self._tests.rglob("test_*.py")):
            if self._tests / "support" not in path.parents:
                yield from self._needs_of(path)

    def _needs_of(self, path: Path) -> Iterator[Need]:
        name = str(path.relative_to(self._tests))
        module = Module(name, ast.parse(path.read_text()))
        scopes = [module, *self._conftests(path)]
        always = marks_of(module.definitions.get("pytestmark")) | {
            suites.FOLDERS.get(name.partition("/")[0], "")
        }
        for test, node in module.definitions.items():
            if isinstance(node, Function) and test.startswith("test_"):
                marks = set(always)
                reached = sorted(self._reached_by_test(node, scopes, marks))
                if source := next((source for source in reached if not marks & SOURCES[source]), None):
                    yield Need(f"tests/{name}::{test}", source, SOURCES[source])

    def _conftests(self, path: Path) -> list[Module]:
        folders = [folder for folder in path.parents if self._tests in (folder, *folder.parents)]
        return [
            Module(str(conftest), ast.parse(conftest.read_text()))
            for folder in folders
            if (conftest := folder / "conftest.py").exists()
        ]

    def _reached_by_test(self, test: Function, scopes: list[Module], marks: set[str]) -> set[str]:
        """Sources that a test and its fixtures reach; adds the marks of the test and its fixtures to `marks`."""
        sources: set[str] = set()
        waiting: list[tuple[Module, ast.stmt]] = [(scopes[0], test)]
        seen: set[ast.stmt] = set()
        while waiting:
            module, node = waiting.pop()
            if node in seen:
                continue
            seen.add(node)
            if isinstance(node, Function):
                marks |= {mark for decorator in node.decorator_list for mark in marks_of(decorator)}
                marks |= {suites.PARTS[name] for name in fixtures_of(node) if name in suites.PARTS}
                if node is test or any(
                    "fixture" in ast.unparse(decorator) for decorator in node.decorator_list
                ):
                    waiting += [found for name in fixtures_of(node) if (found := _definition(name, scopes))]
            waiting += [found for name in _asked_by_name(node) if (found := _definition(name, scopes))]
            for name in module.references(node):
                owner, _, short = name.rpartition(".")
                if owner == module.name:
                    waiting.append((module, module.definitions[short]))
                else:
                    sources |= self.sources(name)
        return sources

    def sources(self, name: str) -> frozenset[str]:
        """Sources that a function or class of tests/support reaches."""
        if name in SOURCES:
            return frozenset({name})
        if name not in self._sources:
            self._sources[name] = frozenset()  # ends circles
            owner, _, short = name.rpartition(".")
            module = self._module(owner)
            node = module.definitions.get(short) if module else None
            if module and node:
                self._sources[name] = frozenset().union(
                    *(self.sources(other) for other in module.references(node) if other)
                )
        return self._sources[name]

    def _module(self, name: str) -> Module | None:
        if name not in self._support:
            path = self._tests / "support" / (name.replace(".", "/") + ".py")
            self._support[name] = (
                Module(name, ast.parse(path.read_text())) if name and path.exists() else None
            )
        return self._support[name]


def marks_of(node: ast.AST | None) -> set[str]:
    """Names of the marks in an expression: `pytest.mark.NAME`, with arguments or in rows."""
    return {
        each.attr
        for each in (ast.walk(node) if node else ())
        if isinstance(each, ast.Attribute)
        and isinstance(each.value, ast.Attribute)
        and each.value.attr == "mark"
    }


def fixtures_of(node: Function) -> Iterable[str]:
    """Names of the fixtures that a test or fixture asks for; a parameter that `parametrize` or `given` fills is none."""
    rows = set[str]()
    for each in (each for decorator in node.decorator_list for each in ast.walk(decorator)):
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Name) and each.func.id == "given":
            rows |= {word.arg for word in each.keywords if word.arg}
            rows |= {a.arg for a in node.args.args[len(node.args.args) - len(each.args) :]}
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute):
            if each.func.attr == "usefixtures":
                yield from _words(each.args)
            elif each.func.attr == "parametrize" and not any(
                word.arg == "indirect" for word in each.keywords
            ):
                rows |= {name for words in _words(each.args[:1]) for name in words.replace(",", " ").split()}
    yield from (a.arg for a in (*node.args.args, *node.args.kwonlyargs) if a.arg not in rows)


def _asked_by_name(node: ast.AST) -> Iterator[str]:
    """Names given to `request.getfixturevalue`."""
    for each in ast.walk(node):
        if (
            isinstance(each, ast.Call)
            and isinstance(each.func, ast.Attribute)
            and each.func.attr == "getfixturevalue"
        ):
            yield from _words(each.args)


def _words(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in (each for parent in nodes for each in ast.walk(parent)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _definition(name: str, scopes: list[Module]) -> tuple[Module, ast.stmt] | None:
    return next(((module, module.definitions[name]) for module in scopes if name in module.definitions), None)


def main() -> int:
    """Print the tests that lack a mark; the exit status."""
    needs = list(Tree().needs())
    for need in needs:
        print(need)
    return 1 if needs else 0


if __name__ == "__main__":
    sys.exit(main())
