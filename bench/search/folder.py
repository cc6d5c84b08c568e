"""A folder of data sets, read with care: what is wrong is said by file and line, and nothing is dropped in silence.

`DATA/<set>/tools.jsonl`: `{id, name, description?, server?, tags?, parameters? {name: text}}` a line.
`DATA/<set>/queries.jsonl`: `{query, relevant: [ids], equivalent?: [ids]}` a line. Without it the set is a catalog:
its tools count in the pooled table only. Other fields are ignored.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from metrics import Sought

from toolcrib_registry.search.entry import IndexEntry, fingerprint

TOOLS, QUERIES = "tools.jsonl", "queries.jsonl"
_SHOWN = 20
"""Mistakes that are named; the others are counted."""


class DataError(Exception):
    """The folder is not what it should be; the message has a line for each mistake."""


@dataclass(frozen=True)
class Query:
    """One request and what answers it."""

    text: str
    relevant: tuple[str, ...]
    equivalent: tuple[str, ...] = ()
    sought: Sought = field(default=Sought(0, {}), compare=False)
    origin: str = ""
    """The set that it comes from."""


@dataclass(frozen=True)
class ToolSet:
    """Tools in the order of the file, and requests."""

    name: str
    tools: list[IndexEntry]
    queries: list[Query]
    remarks: tuple[str, ...] = ()
    """What a reader of the figures should know: sentences."""


def read(data: Path, *, limit: int | None = None, only: Sequence[str] = ()) -> list[ToolSet]:
    """The sets under `data` by name, each with its first `limit` requests; `data` may also be one set itself.

    Raises:
        DataError: a file cannot be read, a line is not what it should be, or there is no set.
    """
    if not data.is_dir():
        raise DataError(f"{data}: not a folder; DATA holds one folder a set, each with {TOOLS}")
    folders = (
        [data]
        if (data / TOOLS).exists()
        else sorted(p for p in data.iterdir() if p.is_dir() and p.name[0] != ".")
    )
    found = {p.name: p for p in folders if (p / TOOLS).exists() or (p / QUERIES).exists()}
    if unknown := sorted(set(only) - set(found)):
        raise DataError(f"{data}: no set {', '.join(unknown)}; there are: {', '.join(found) or 'none'}")
    if not found:
        raise DataError(f"{data}: no folder in it has {TOOLS}; DATA holds one folder a set")
    sets: list[ToolSet] = []
    wrong: list[str] = []
    for name, folder in found.items():
        if not only or name in only:
            mistakes, tool_set = _read_set(folder, limit)
            wrong += mistakes
            sets.append(tool_set)
    if wrong:
        more = [f"… and {len(wrong) - _SHOWN} more"] if len(wrong) > _SHOWN else []
        raise DataError("\n".join([*wrong[:_SHOWN], *more]))
    return sets


def requests(sets: Sequence[ToolSet]) -> list[str]:
    """What is asked in all of `sets`.

    Raises:
        DataError: nothing is.
    """
    if not (found := [q.text for s in sets for q in s.queries]):
        names = ", ".join(s.name for s in sets)
        raise DataError(f"no set has {QUERIES} with a request that a tool answers; the sets are: {names}")
    return found


def counted(count: int, one: str, many: str) -> str:
    """`count` of something with its verb, as in "1 query names", "2 queries name"."""
    return f"{count} {one if count == 1 else many}"


def pooled(sets: Sequence[ToolSet]) -> ToolSet:
    """All tools in one catalog, each under `set/id`, and every set's requests; what is right stays in its set."""
    tools, queries = [], []
    for one in sets:
        tools += [dataclasses.replace(t, tool_id=f"{one.name}/{t.tool_id}") for t in one.tools]
        for query in one.queries:
            places = {f"{one.name}/{i}": place for i, place in query.sought.places.items()}
            anywhere = frozenset(f"{one.name}/{i}" for i in query.sought.anywhere)
            sought = Sought(query.sought.count, places, anywhere)
            queries.append(dataclasses.replace(query, sought=sought, origin=one.name))
    return ToolSet("pooled", tools, queries)


def _read_set(folder: Path, limit: int | None) -> tuple[list[str], ToolSet]:
    wrong: list[str] = []
    remarks: list[str] = []
    tools: dict[str, IndexEntry] = {}
    under: dict[str, list[str]] = {}
    repeated = renamed = 0
    for where, row in _rows(folder / TOOLS, wrong):
        if (tool := _tool(where, row, wrong)) is None:
            continue
        same = under.setdefault(tool.tool_id, [])
        if any(tools[i].digest == tool.digest for i in same):
            repeated += 1
            continue
        # another tool under an id that is taken: both are there, and a hit on either is a hit on the id
        place = tool.tool_id
        while place in tools:
            place = f"{tool.tool_id}#{len(same) + 1}" if place == tool.tool_id else f"{place}'"
        renamed += bool(same)
        same.append(place)
        tools[place] = dataclasses.replace(tool, tool_id=place)
    if not tools and not wrong:
        wrong.append(f"{folder / TOOLS}: no tools in it")
    queries, unknown, unanswered = [], 0, 0
    if (folder / QUERIES).exists():
        for number, (where, row) in enumerate(_rows(folder / QUERIES, wrong)):
            query = _query(where, row, wrong)
            if query is None or (limit is not None and number >= limit):
                continue
            if not query.relevant:
                unanswered += 1
                continue
            unknown += any(i not in under for i in query.relevant)
            queries.append(
                dataclasses.replace(query, sought=_sought(query, tools, under), origin=folder.name)
            )
    if repeated:
        remarks.append(f"{counted(repeated, 'tool is', 'tools are')} there twice, word for word: taken once")
    if renamed:
        remarks.append(
            f"{counted(renamed, 'tool has', 'tools have')} the id of another one: both are in, a hit on either counts"
        )
    if unknown:
        remarks.append(
            f"{counted(unknown, 'query names', 'queries name')} relevant ids that {TOOLS} does not have: these count as "
            "not found"
        )
    if unanswered:
        remarks.append(
            f"{counted(unanswered, 'query has', 'queries have')} no relevant tool: left out, no figure is defined for that"
        )
    return wrong, ToolSet(folder.name, list(tools.values()), queries, tuple(remarks))


def _sought(query: Query, tools: Mapping[str, IndexEntry], under: Mapping[str, list[str]]) -> Sought:
    relevant = list(dict.fromkeys(query.relevant))
    places = {place: number for number, i in enumerate(relevant) for place in (i, *under.get(i, ()))}
    named: dict[str, int] = {}
    for number, i in enumerate(relevant):
        if i in tools:
            named.setdefault(tools[i].name.casefold(), number)
    anywhere: set[str] = set()
    for i in query.equivalent:
        for place in under.get(i, ()):
            number_of = named.get(tools[place].name.casefold())
            if place in places:
                continue
            if number_of is not None:
                places[place] = number_of
            else:
                anywhere.add(place)
    return Sought(len(relevant), places, frozenset(anywhere))


def _rows(path: Path, wrong: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each line as an object with where it is; what is wrong goes to `wrong`."""
    try:
        content = path.read_bytes()
    except OSError as error:
        wrong.append(f"{path}: cannot be read: {error.strerror}")
        return
    for number, line in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        where = f"{path}:{number}"
        if not line.strip():
            continue
        try:
            row = json.loads(line.decode())
        except UnicodeDecodeError as error:
            wrong.append(f"{where}: not UTF-8 at byte {error.start}")
        except json.JSONDecodeError as error:
            wrong.append(
                f"{where}: not JSON: {error.msg} at column {error.colno}; one object a line is expected"
            )
        except (RecursionError, ValueError) as error:
            wrong.append(f"{where}: not JSON that can be read: {error}")
        else:
            if isinstance(row, dict):
                yield where, row
            else:
                wrong.append(f"{where}: a {type(row).__name__} instead of an object")


def _tool(where: str, row: Mapping[str, Any], wrong: list[str]) -> IndexEntry | None:
    identifier, name = _id(row.get("id")), _id(row.get("name"))
    if identifier is None or name is None:
        missing = "id" if identifier is None else "name"
        wrong.append(f"{where}: `{missing}` must be a text that is not empty, not {_shown(row.get(missing))}")
        return None
    for key in ("description", "server"):
        if not isinstance(row.get(key) or "", str):
            wrong.append(f"{where}: `{key}` must be a text, not {_shown(row[key])}")
            return None
    tags, parameters = row.get("tags") or [], row.get("parameters") or {}
    if not isinstance(tags, list):
        wrong.append(f"{where}: `tags` must be a list of texts, not {_shown(tags)}")
        return None
    if not isinstance(parameters, dict):
        wrong.append(f"{where}: `parameters` must be an object of name and text, not {_shown(parameters)}")
        return None
    entry = IndexEntry(
        tool_id=identifier,
        digest="",
        namespace="catalog",
        name=name,
        server=_clean(row["server"]) if row.get("server") else None,
        description=_clean(row.get("description") or ""),
        tags=tuple(_clean(str(t)) for t in tags if t is not None),
        parameters={_clean(k): _parameter(v) for k, v in parameters.items()},
    )
    return dataclasses.replace(entry, digest=fingerprint(entry))


def _query(where: str, row: Mapping[str, Any], wrong: list[str]) -> Query | None:
    if not isinstance(row.get("query"), str):
        wrong.append(f"{where}: `query` must be a text, not {_shown(row.get('query'))}")
        return None
    ids: dict[str, tuple[str, ...]] = {}
    for key in ("relevant", "equivalent"):
        value = row.get(key)
        if value is None and key == "equivalent":
            value = []
        if not isinstance(value, list) or any(_id(v) is None for v in value):
            wrong.append(f"{where}: `{key}` must be a list of tool ids, not {_shown(value)}")
            return None
        ids[key] = tuple(i for v in value if (i := _id(v)) is not None)
    return Query(_clean(row["query"]), ids["relevant"], ids["equivalent"])


def _id(value: Any) -> str | None:
    if isinstance(value, str | int) and not isinstance(value, bool) and str(value):
        return _clean(str(value))
    return None


def _parameter(value: Any) -> str:
    text = value.get("description") if isinstance(value, dict) else value
    return "" if text is None else _clean(str(text))


def _clean(text: str) -> str:
    """`text` without halves of characters, which JSON can carry and UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode()


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= 60 else text[:59] + "…"
