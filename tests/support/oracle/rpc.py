"""Questions to the Model Context Protocol's endpoints, and what their answers say."""

from dataclasses import dataclass
from typing import Any

from oracle.asked import Asked, Difference, same
from oracle.revisions import STATELESS, request
from oracle.rig import Answer

UNKNOWN = {"code": -32602, "message": "Unknown tool"}


@dataclass(frozen=True)
class Said:
    """An answer's result or error."""

    version: str | None
    result: dict[str, Any]
    error: dict[str, Any] | None

    @property
    def code(self) -> str | None:
        """Of a call that failed; None: it did not."""
        if not self.result.get("isError"):
            return None
        code: str = self.result["_meta"]["toolcrib.dev/code"]
        return code

    @property
    def text(self) -> str:
        """What a model reads."""
        return "\n".join(block["text"] for block in self.result["content"])


async def ask(q: Asked, path: str, version: str | None, method: str, **params: Any) -> Said | None:
    """One request; None: it must be, and is, a 401."""
    body, fields = request(version, method, params)
    answer: Answer = await q.rig.ask("POST", path, q.caller, body, **fields)
    if q.refused(answer):
        return None
    same("status", answer.status, 200)
    message = answer.json
    same("the answer's id", message["id"], 7)
    result, error = message.get("result", {}), message.get("error")
    if error is None and (result.get("resultType") == "complete") != (version in STATELESS):
        raise Difference(f"a result of another era: {result}")
    return Said(version, result, error)


async def call(q: Asked, path: str, version: str | None, name: str, **arguments: Any) -> Said | None:
    """`tools/call`."""
    return await ask(q, path, version, "tools/call", name=name, arguments=arguments)


def is_one(q: Asked, said: Said, ids: list[str], name: str) -> bool:
    """Whether the name means one tool of `ids`; else the answer must name the visible ones, or say that there is none."""
    if q.names.conflicts(name) and ids and "/" not in name:
        same("code", said.code, "ambiguous_name")
        same("tool_ids", sorted(said.text.partition("tool_ids: ")[2].split(", ")), ids)
        return False
    if not ids:
        same("error", said.error, UNKNOWN)
        return False
    same("error", (said.error, said.code), (None, None))
    return True
