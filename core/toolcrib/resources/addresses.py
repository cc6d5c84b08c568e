"""Where something is: a Service of the object's own namespace, or a URL; and the rules of both."""

from __future__ import annotations

from typing import ClassVar, Protocol

from pydantic import Field

from toolcrib.resources import durations
from toolcrib.resources.meta import DnsLabel, Model, Rule, Whole

URL = r"^https?://([A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?(/[!-~]*)?$"
PATH = r"^/[!-~]*$"
MAX_TIMEOUT = 300.0


class ServiceReference(Model):
    """A Service of the object's own namespace."""

    name: DnsLabel = Field(description="Name of the Service, in the namespace of the object.")
    port: Whole = Field(ge=1, le=65535, description="Port number of the Service.")


class TokenService(ServiceReference):
    """A token endpoint at a Service of the object's own namespace."""

    path: str = Field(pattern=PATH, max_length=1024, description="Path of the token endpoint at the Service.")

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!(self.path.contains('/../') || self.path.endsWith('/..') || self.path.contains('#'))",
            "path must not have a fragment or a .. segment",
            lambda s: not ("/../" in s.path or s.path.endswith("/..") or "#" in s.path),
        ),
    )


class Addressed(Protocol):
    """Has an address, at a Service or elsewhere, and a deadline."""

    service: ServiceReference | None
    url: str | None
    path: str | None
    timeout: str


EITHER = Rule(
    "has(self.service) != has(self.url)",
    "set either service or url",
    lambda m: (m.service is None) != (m.url is None),
)


def address_rules(barred: str, said: str) -> tuple[Rule, ...]:
    """The rules of an address, whatever it names.

    `said` names what its path must not have: .. segments and the characters `barred`.
    """

    def whole(path: str) -> bool:
        return not ("/../" in path or path.endswith("/..") or any(c in path for c in barred))

    def apart(m: Addressed) -> bool:
        return m.url is None or m.path is None

    def valid(m: Addressed) -> bool:
        return m.path is None or whole(m.path)

    def short(m: Addressed) -> bool:
        return durations.seconds(m.timeout) <= MAX_TIMEOUT

    characters = "".join(f" || self.path.contains('{c}')" for c in barred)
    return (
        Rule(
            "!has(self.url) || !has(self.path)",
            "path needs service; with url, make the path a part of the url",
            apart,
        ),
        Rule(
            f"!has(self.path) || !(self.path.contains('/../') || self.path.endsWith('/..'){characters})",
            said,
            valid,
        ),
        Rule("duration(self.timeout) <= duration('5m')", "timeout must be at most 5m", short),
    )
