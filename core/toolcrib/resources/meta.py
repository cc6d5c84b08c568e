"""What every kind shares: the base model, its validation rules, and object metadata.

A rule is written once with two faces: the CEL expression that the API server runs and the Python predicate
that the models run. A differential test on a real API server keeps the faces equal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from toolcrib import names

GROUP = "toolcrib.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"


@dataclass(frozen=True, slots=True)
class Rule:
    """One cross-field rule: `cel` for the API server, `holds` for the models, one message for both.

    Rules without `holds` run on the server only: they compare with `oldSelf`, or the models' types refuse earlier.
    """

    cel: str
    message: str
    holds: Callable[[Any], bool] | None = None


class Model(BaseModel):
    """Base of every resource model: camelCase on the wire, no coercion; `null` is absence, as the API server has it.

    Unknown fields are ignored here (a rollback must not break) and forbidden by `resources.parse(strict=True)`.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        frozen=True,
        strict=True,
        extra="ignore",
    )

    rules: ClassVar[tuple[Rule, ...]] = ()

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, value: Any) -> Any:
        """The API server drops null where a field may be absent, and refuses it where it may not."""
        if not isinstance(value, dict):
            return value
        kept = dict(value)
        for name, field in cls.model_fields.items():
            for key in (field.alias or name, name):
                if key in kept and kept[key] is None:
                    if field.is_required():
                        raise PydanticCustomError("null", "{field} is null, but required", {"field": key})
                    del kept[key]
        return kept

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        generated = handler.resolve_ref_schema(handler(schema))
        if cls.rules:
            generated["x-kubernetes-validations"] = [{"rule": r.cel, "message": r.message} for r in cls.rules]
        return generated

    @model_validator(mode="after")
    def _keep_rules(self) -> Self:
        for rule in self.rules:
            if rule.holds is not None and not rule.holds(self):
                raise PydanticCustomError("rule", "{message}", {"message": rule.message})
        return self


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE = BeforeValidator(_whole)
"""For an optional integer with bounds: those stand before it, else no schema has them."""
Whole = Annotated[int, WHOLE]
"""An integer; 80.0 is one too, as for the API server."""


def unique(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """A list of `x-kubernetes-list-type: set`: duplicates are refused."""
    if len(set(values)) != len(values):
        twice = next(v for i, v in enumerate(values) if v in values[:i])
        raise PydanticCustomError("duplicate", "duplicate value: {value}", {"value": str(twice)})
    return values


@dataclass(frozen=True, slots=True)
class ListOf:
    """Bounds of a list and its Kubernetes list type (`set`: no duplicates; `atomic`); JSON arrays become tuples."""

    low: int
    high: int
    kind: str = "set"

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        items = {**handler(source), "strict": False, "min_length": self.low, "max_length": self.high}
        if self.kind != "set":
            return items
        return core_schema.no_info_after_validator_function(unique, items)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**handler(schema), "x-kubernetes-list-type": self.kind}


Scope = Annotated[str, Field(pattern=names.SCOPE, max_length=128)]
ServerName = Annotated[str, Field(pattern=names.SERVER_NAME, max_length=63)]
DnsLabel = Annotated[str, Field(pattern=names.DNS_LABEL, max_length=63)]
DnsSubdomain = Annotated[str, Field(pattern=names.DNS_SUBDOMAIN, max_length=253)]
ToolName = Annotated[str, Field(pattern=names.TOOL_NAME, max_length=128)]


class ObjectMeta(BaseModel):
    """The part of Kubernetes' object metadata that Toolcrib reads; everything else is left alone."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, frozen=True, extra="ignore")

    name: str = Field(pattern=names.DNS_SUBDOMAIN, max_length=253)
    namespace: str | None = Field(default=None, pattern=names.DNS_LABEL, max_length=63)
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    finalizers: tuple[str, ...] = ()
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
