"""Names of tools for models: one function for every place that offers tools to a model.

A model's function has a name of `[A-Za-z0-9_-]{1,48}`: OpenAI takes 64 of these characters, and clients of MCP put a
server's name before it. There are three forms (issue 13, B.1):

1. the bare name, where discovery lists the tool by it;
2. `namespace__name`: the tool id with `__` for the slash;
3. the first 41 characters of that, `_` and six hex digits of sha256(tool id), other characters replaced by `_`.

A bare name with a dot or `__`, one that ends in `_` and six hex digits, and one that is too long take the third form;
so does an id that the second cannot carry. Two forms therefore never meet: only the third ends in `_` and six hex
digits, and only the second has `__` without that end.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Mapping

MAX_LENGTH = 48
_DIGITS = 6
_ROUNDS = MAX_LENGTH // (_DIGITS + 1)
_ALLOWED = re.compile(r"[A-Za-z0-9_-]+")
_ID = re.compile(r"[a-z0-9-]+/[a-z0-9-]+")
"""Neither part has an underscore, so the first `__` of the second form is where the namespace ends."""
_MARK = re.compile(r"_[0-9a-f]{6}\Z")


def is_plain(name: str) -> bool:
    """Whether a bare name is its own name for models."""
    return _fits(name) and _ALLOWED.fullmatch(name) is not None and "__" not in name


def is_marked(name: str) -> bool:
    """Whether a name for models has the third form, the only one in which two can meet."""
    return _MARK.search(name) is not None


def model_name(listed: str, tool_id: str) -> str:
    """The name for models of one tool.

    Args:
        listed: the name under which discovery lists it: a bare name, or the tool id.
        tool_id: `namespace/name`.
    """
    if is_plain(listed):
        return listed
    if _ID.fullmatch(listed) is not None and _fits(joined := listed.replace("/", "__")):
        return joined
    return _marked(listed, tool_id, 1)


def model_names(tools: Mapping[str, str], taken: Collection[str] = ()) -> dict[str, str]:
    """Names for models of all tools of one caller, each another: listed name → name.

    Where two names meet (somebody tried ids until six digits were equal), both get more digits, so that neither tool
    is called by the other's name.

    Args:
        tools: listed name → tool id.
        taken: names that stand for something else already.
    """
    found = {listed: model_name(listed, tool_id) for listed, tool_id in tools.items()}
    for rounds in range(2, _ROUNDS + 1):
        uses = Counter(found.values())
        met = [listed for listed, name in found.items() if uses[name] > 1 or name in taken]
        if not met:
            return found
        for listed in met:
            found[listed] = _marked(listed, tools[listed], rounds)
    raise AssertionError("two tools with one sha256")


def _fits(name: str) -> bool:
    return 0 < len(name) <= MAX_LENGTH and not is_marked(name)


def _marked(listed: str, tool_id: str, rounds: int) -> str:
    """The third form. With more `rounds`, more groups of digits stand before the last."""
    digits = hashlib.sha256(tool_id.encode()).hexdigest()[:_DIGITS]
    more = hashlib.sha256(f"{tool_id} {listed}".encode()).hexdigest()
    groups = [more[at : at + _DIGITS] for at in range(0, (rounds - 1) * _DIGITS, _DIGITS)]
    mark = "".join(f"_{group}" for group in (*groups, digits))
    base = re.sub(r"[^A-Za-z0-9_-]", "_", tool_id.replace("/", "__"))
    return base[: MAX_LENGTH - len(mark)] + mark
