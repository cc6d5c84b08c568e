"""Turn a list of public MCP tools into Tool manifests, one file a server.

    python examples/catalog/generate.py path/to/mcp_tools/tools.jsonl

The input holds one JSON object a line: {name, description, server, server_description, tags, parameters}. The output
is the same for the same input, whatever the machine. See SOURCE.md for where the data comes from.
"""

import argparse
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from parameters import schema_of

from toolcrib.names import object_name, slug

TOOLS = Path(__file__).resolve().parent / "tools"
NAMESPACE = "catalog"
LONGEST_DESCRIPTION, LONGEST_TITLE, LONGEST_TAG, MOST_TAGS = 4096, 256, 64, 16

Row = dict[str, Any]


def main() -> None:
    """Read the rows, write `<server>.yaml` for each server, remove files of servers that are gone."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", type=Path, metavar="TOOLS_JSONL", help="the tools, one JSON object a line")
    parser.add_argument("--out", type=Path, default=TOOLS, help="folder of the manifests")
    arguments = parser.parse_args()
    lines = arguments.rows.read_text(encoding="utf-8").splitlines()
    files = catalog(json.loads(line) for line in lines if line.strip())
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.out == TOOLS:  # a folder of somebody's own may hold other manifests
        for stale in set(TOOLS.glob("*.yaml")) - {TOOLS / name for name in files}:
            stale.unlink()
    for name, text in files.items():
        (arguments.out / name).write_text(text, encoding="utf-8")
    print(f"{sum(text.count('kind: Tool') for text in files.values())} tools of {len(files)} servers")


def catalog(rows: Iterable[Row]) -> dict[str, str]:
    """The manifests by file name.

    Raises:
        ValueError: two tools of one server have one name even after it was made valid and numbered.
    """
    servers: dict[str, list[Row]] = {}
    for row in rows:
        servers.setdefault(row["server"], []).append(row)
    files: dict[str, str] = {}
    for server in sorted(servers, key=lambda s: (slug(s), s)):
        key, label = slug(server), _identifier(server, "-", 60)
        # Two servers may differ in case alone; patterns ignore case, so the second gets a number.
        if f"{key}.yaml" in files:
            number = next(n for n in range(2, 100) if f"{key}-{n}.yaml" not in files)
            key, label = f"{key}-{number}", f"{label}-{number}"
        files[f"{key}.yaml"] = _file(server, servers[server], key, label)
    return files


def _file(server: str, rows: list[Row], key: str, label: str) -> str:
    taken: set[str] = set()
    tools = []
    for row in rows:
        name = unique = _identifier(row["name"], "_", 124)
        number = 2
        while unique.lower() in taken:
            unique, number = f"{name}_{number}", number + 1
        taken.add(unique.lower())
        tools.append(_tool(row, unique, key, label))
    names = {tool["metadata"]["name"] for tool in tools}
    if len(names) != len(tools):
        raise ValueError(f"{server}: two tools would be one object")
    about = _plain(f"{server}: {rows[0].get('server_description') or ''}", 4096)
    return f"# {about}\n" + _yaml(tools)


def _tool(row: Row, name: str, key: str, label: str) -> dict[str, Any]:
    object_ = object_name(label, row["name"])
    spec: dict[str, Any] = {"name": name, "server": label}
    if name != row["name"]:
        spec["title"] = _plain(row["name"], LONGEST_TITLE)
    spec["description"] = _plain(row["description"], LONGEST_DESCRIPTION)
    spec["scopes"] = ["catalog:use", f"{key}:use"]
    if tags := list(dict.fromkeys(_plain(tag, LONGEST_TAG) for tag in row.get("tags") or []))[:MOST_TAGS]:
        spec["tags"] = tags
    spec["inputSchema"] = _input_schema(row.get("parameters") or {})
    service = {"name": "example-tools", "port": 8080}
    spec["backend"] = {"http": {"service": service, "path": f"/tools/echo/{object_}"}}
    return {
        "apiVersion": "toolcrib.dev/v1alpha1",
        "kind": "Tool",
        "metadata": {"name": object_, "namespace": NAMESPACE},
        "spec": spec,
    }


def _input_schema(notes: dict[str, str]) -> dict[str, Any]:
    schemas = {name: schema_of(note) for name, note in notes.items()}
    schema: dict[str, Any] = {"type": "object"}
    if schemas:
        schema["properties"] = {name: part for name, (part, _) in schemas.items()}
    if required := [name for name, (_, needed) in schemas.items() if needed]:
        schema["required"] = required
    return schema


def _identifier(text: str, filler: str, limit: int) -> str:
    """`text` in the characters of MCP names: every other run becomes one `filler`. Valid text stays as it is."""
    if re.fullmatch(rf"[A-Za-z0-9_.-]{{1,{limit}}}", text):
        return text
    return re.sub(r"[^A-Za-z0-9_.-]+", filler, text).strip(filler)[:limit] or "tool"


def _plain(text: str, limit: int) -> str:
    """One line without control, bidirectional or zero-width characters, cut at the limit."""
    line = re.sub(r"[\x00-\x20\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]+", " ", text).strip()
    return line if len(line) <= limit else line[: limit - 1] + "…"


class _Dumper(yaml.CSafeDumper):
    """Block style, no aliases, and quotes around texts that another YAML reader takes for a number or a boolean."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.CSafeDumper, value: str) -> yaml.Node:
    style = '"' if re.fullmatch(r"[-+]?[0-9][0-9A-Fa-f_.,:oOxX+-]*|[yYnN]", value) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def _yaml(objects: list[dict[str, Any]]) -> str:
    return yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


if __name__ == "__main__":
    main()
