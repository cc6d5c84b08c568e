"""Variables of Grafana in a query, replaced as Grafana does it for a Prometheus data source."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

VARIABLE = re.compile(
    r"\$\{(?P<braced>\w+)(?:\.[\w.\[\]\"]+)?(?::(?P<format>[\w-]+))?\}|\$(?P<plain>\w+)|\[\[(?P<old>\w+)\]\]"
)
ALL = ".*"
_SPECIAL = re.compile(r"[\\^$*+?.()|{}\[\]/-]")


class UnknownVariableError(KeyError):
    """A query names a variable that is neither chosen nor built in."""


@dataclass(frozen=True)
class Choice:
    """What a viewer has chosen.

    Attributes:
        values: name of a variable → the chosen values; the text `.*` for All.
        range_seconds: length of the time range.
        step_seconds: distance of drawn points.
        scrape_seconds: the data source's scrape interval.
    """

    values: Mapping[str, Sequence[str] | str] = field(default_factory=dict)
    range_seconds: int = 6 * 3600
    step_seconds: int = 30
    scrape_seconds: int = 15

    def built_in(self) -> dict[str, str]:
        """The variables that every dashboard has."""
        rate = max(self.step_seconds + self.scrape_seconds, 4 * self.scrape_seconds)
        return {
            "__range": f"{self.range_seconds}s",
            "__range_s": str(self.range_seconds),
            "__range_ms": str(self.range_seconds * 1000),
            "__interval": f"{self.step_seconds}s",
            "__interval_ms": str(self.step_seconds * 1000),
            "__rate_interval": f"{rate}s",
            "__rate_interval_ms": str(rate * 1000),
        }


def interpolate(query: str, choice: Choice) -> str:
    """The query as Prometheus gets it: several values become an alternative, each escaped for a regular expression.

    Raises:
        UnknownVariableError: the query names a variable that is not there; Grafana would send its name as it stands.
    """
    built_in = choice.built_in()

    def value(found: re.Match[str]) -> str:
        name = name_of(found)
        if name in built_in:
            return built_in[name]
        if name not in choice.values:
            raise UnknownVariableError(name)
        chosen = choice.values[name]
        if isinstance(chosen, str):
            return chosen
        escaped = [_escape(each) for each in chosen]
        return escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"

    return VARIABLE.sub(value, query)


def names_in(text: str) -> set[str]:
    """The variables that a text names."""
    return {name_of(found) for found in VARIABLE.finditer(text)}


def name_of(found: re.Match[str]) -> str:
    """Which variable a match of VARIABLE is."""
    return found["braced"] or found["plain"] or found["old"]


def _escape(value: str) -> str:
    # in a string of PromQL a backslash is written twice
    return _SPECIAL.sub(lambda m: "\\\\" + m.group(), value)
