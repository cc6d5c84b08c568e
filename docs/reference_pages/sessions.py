"""The file of a session, from its model, and what stands in the store."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any, get_args

from pydantic import BaseModel
from reference_pages.markdown import code, table

from toolcrib_cli.sessions.definition import Definition

_HEAD = """# The session's file

`toolcrib session run FILE` reads YAML: a session, or a ConfigMap that holds one under `session.yaml`.
[The guide](../guides/team-of-agents.md) begins with an example.
Unknown fields are refused with their line. No field names tools: what an agent has is what bindings grant to its account.

`required`: the session does not begin without it. `degrade`: it begins, and says so.

"""
_REST = """
## What is checked before the first turn

Each part has two seconds, all side by side. Registry and issuer are always required.

| part | it is there if |
|---|---|
| `registry` | it answers the agent's discovery |
| `issuer` | there is a token for the account, and the registry accepts it |
| `model` | the endpoint answers `GET /models` with anything but 401, 403 or 5xx |
| `memory` | the agent has `store_memory` and `get_compressed_memory` |
| `tool backends` | the registry reports no backend of the agent as [down](../guides/agents.md#searching); it is asked for 100 tools |

## Outcomes

| of a turn | |
|---|---|
| `answered` | the model has answered |
| `out_of_turns`, `out_of_tokens`, `out_of_time`, `context_full`, `looping`, `too_many_tools` | a bound was reached |
| `model_failed` | the model's endpoint refused, or failed for a minute |
| `registry_away` | the registry did not answer the turn's discovery in ten seconds |
| `running`, `interrupted` | it has not ended; a resumed session does it again |

| of a call | |
|---|---|
| `ok`, or the code of an error | as the agent was told |
| `unknown` | the run ended before the answer came |
| `already_called` | not made: an earlier attempt at the turn made it, or may have, and the tool is not idempotent |

## The store

SQLite in the data folder (`sessions.sqlite`, 0600), or `--store postgresql://USER@HOST/DATABASE` (`toolcrib[postgres]`; the image has it).
The password comes from `PGPASSWORD` or a `.pgpass` file.
A database of a newer Toolcrib is refused. All who may read the store can read every session in it.

| table | holds |
|---|---|
| `sessions` | file, state, who runs it and its signs of life |
| `views` | tools and scopes that each agent discovered before the first turn |
| `turns`, `calls` | as above; `answer` only with `messages: keep`, at most 256 KiB |
| `uses` | calls that reached a tool, by account, over all sessions ever |

Without `messages: keep` the reasons of `model_failed` and `looping` are not stored either: they can quote messages.
"""


def page() -> str:
    """Every field, then what a session checks, counts and keeps."""
    rows = list(_rows(Definition, ""))
    return _HEAD + table(("field", "default", "meaning"), rows) + _REST


def _rows(model: type[BaseModel], before: str) -> Iterator[tuple[str, str, str]]:
    for field in model.model_fields.values():
        name = f"{before}{field.alias}"
        inner = next((a for a in (field.annotation, *get_args(field.annotation)) if _is_model(a)), None)
        if inner is None:
            yield (
                code(name),
                _default(field.default) if not field.is_required() else "",
                field.description or "",
            )
        elif field.description:
            yield code(name), "", field.description
        else:
            yield from _rows(inner, f"{name}[]." if get_args(field.annotation) else f"{name}.")


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _default(value: Any) -> str:
    value = value.value if isinstance(value, Enum) else value
    return "" if value in (None, "") else code(f"{value:,}" if type(value) is int else str(value))
