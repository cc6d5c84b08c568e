"""A document that others wrote: what it refers to within itself, and why an operation cannot be a tool."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
MAX_OPERATIONS = 200_000
_MAX_CHAIN = 16
"""References that follow each other."""


class UnusableDocumentError(ValueError):
    """Nothing can be imported; the message says why, `hint` what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class LeftOutError(ValueError):
    """One operation cannot be a tool; the message is the reason, the same for all that share it."""


class Document:
    """An OpenAPI document, parsed.

    Args:
        content: what the file holds.

    Raises:
        UnusableDocumentError: it is no OpenAPI document of version 3.0 or 3.1.
    """

    def __init__(self, content: Any) -> None:
        if not isinstance(content, dict):
            raise UnusableDocumentError("it does not hold a JSON or YAML object")
        version = content.get("openapi")
        if content.get("swagger") is not None:
            raise UnusableDocumentError(
                "it is Swagger 2.0, and OpenAPI 3.0 or 3.1 is needed",
                "convert it, for example with swagger2openapi",
            )
        if not isinstance(version, str) or re.match(r"3\.[01](\.|$)", version) is None:
            raise UnusableDocumentError(
                "it is not OpenAPI 3.0 or 3.1", "the document must have a field openapi: 3.0.x or 3.1.x"
            )
        self.content = content
        self.is_3_0 = version.startswith("3.0")
        info = content.get("info")
        title = info.get("title") if isinstance(info, dict) else None
        self.title = title if isinstance(title, str) else ""

    def at(self, reference: Any) -> Any:
        """What a `$ref` leads to.

        Raises:
            LeftOutError: out of the document, or nowhere.
        """
        if not isinstance(reference, str) or not reference.startswith("#/"):
            raise LeftOutError("it refers to another document")
        node: Any = self.content
        for raw in reference[2:].split("/"):
            key = unquote(raw).replace("~1", "/").replace("~0", "~")
            if isinstance(node, dict) and key in node:
                node = node[key]
            elif isinstance(node, list) and key.isascii() and key.isdigit() and int(key[:9]) < len(node):
                node = node[int(key[:9])]
            else:
                raise LeftOutError("it has a reference that leads nowhere")
        return node

    def resolved(self, node: Any) -> dict[str, Any]:
        """The object itself, or what its `$ref` leads to.

        Raises:
            LeftOutError: it is no object, or its references lead nowhere, or in a circle.
        """
        for _ in range(_MAX_CHAIN):
            if not isinstance(node, dict):
                raise LeftOutError("a part of it is not an object")
            if "$ref" not in node:
                return node
            node = self.at(node["$ref"])
        raise LeftOutError("its references lead in a circle")

    def operations(self) -> Iterator[tuple[str, str, dict[str, Any], dict[str, Any]]]:
        """(method, path, path item, operation) of each, in the document's order.

        Raises:
            UnusableDocumentError: it has no paths, or too many operations.
        """
        paths = self.content.get("paths")
        if not isinstance(paths, dict):
            raise UnusableDocumentError("it has no paths")
        count = 0
        for path, item in paths.items():
            if not isinstance(item, dict):
                continue
            if "$ref" in item:
                try:
                    item = {**self.resolved(item), **{k: v for k, v in item.items() if k != "$ref"}}
                except LeftOutError:
                    continue
            for method in item:
                if method in METHODS and isinstance(item[method], dict):
                    count += 1
                    if count > MAX_OPERATIONS:
                        raise UnusableDocumentError(f"it has more than {MAX_OPERATIONS:,} operations")
                    yield method, path, item, item[method]


def listed(value: Any) -> list[Any]:
    """A list, or an empty one for anything else."""
    return value if isinstance(value, list) else []


def mapped(value: Any) -> dict[str, Any]:
    """An object, or an empty one for anything else."""
    return value if isinstance(value, dict) else {}


_TAGS = re.compile(
    r"</?(?:a|b|br|code|dd|div|dl|dt|em|h[1-6]|hr|i|img|li|ol|p|pre|span|strong|sub|sup|table|tbody|td|th|thead|tr|ul)"
    r"(?:\s[^<>]{0,300})?/?>",
    re.IGNORECASE,
)


def plain(text: Any) -> str:
    """Text without HTML's marks and without spaces at its ends; empty for anything else than text."""
    if not isinstance(text, str):
        return ""
    kept = (
        _TAGS.sub("", text[:20_000].replace("\r\n", "\n"))
        if "<" in text
        else text[:20_000].replace("\r\n", "\n")
    )
    return kept.strip()
