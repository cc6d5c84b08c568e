"""YAML of settings, read so that nothing in it gets lost: a key that stands twice is refused by its name."""

from __future__ import annotations

from typing import Any

import yaml


class InvalidYaml(ValueError):
    """Text that is refused; the message says where and why, and quotes keys at most: a value may be a secret."""


def parse(text: str) -> Any:
    """The one document of `text`.

    Raises:
        InvalidYaml: it cannot be read, or a mapping has a key twice.
    """
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}: " if mark is not None else ""
        # of other errors the words may quote a value
        told = isinstance(error, (_Twice, yaml.scanner.ScannerError, yaml.parser.ParserError))
        raise InvalidYaml(f"{place}{error.problem if told else 'not valid YAML'}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidYaml(f"not valid YAML ({type(error).__name__})") from None


class _Twice(yaml.MarkedYAMLError):
    """A key that stands twice in one mapping."""


class _Loader(yaml.SafeLoader):
    def compose_mapping_node(self, anchor: dict[Any, yaml.Node]) -> yaml.MappingNode:
        # while it is composed: later, what a merge key (`<<`) brings and the mapping overrides would look the same
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    raise _Twice(None, None, f"the key {key.value!r} appears twice", key.start_mark)
                seen.add((key.tag, key.value))
        return node
