"""How a service is set up: flags, else variables, else a file, else defaults; every problem at once.

A `Source` is one model of settings and where their values come from. Each service has one.
"""

from __future__ import annotations

import argparse
import types
import typing
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from toolcrib import wording
from toolcrib.errors import SettingsInvalid

S = TypeVar("S", bound=BaseModel)
NESTED = "__"
"""Between the parts of a nested field's variable."""


class Source(Generic[S]):
    """The fields of `model`, the variable of each, and the flags of those that have one."""

    def __init__(
        self,
        model: type[S],
        prefix: str,
        *,
        variables: Mapping[str, str] | None = None,
        parse: Callable[[str], Any] = str,
        empty: Callable[[str], bool] = lambda field: False,
        older: Collection[str] = (),
        forms: Mapping[str, str] | None = None,
    ) -> None:
        """Everything about a service's settings that its model does not say.

        Args:
            model: every setting; descriptions become help.
            prefix: of variables: `prefix` and the field in capitals, `__` between nested names.
            variables: other names, by field.
            parse: what the text of a variable means. Raises ValueError, whose message quotes no value.
            empty: whether an empty variable is a value of this field; else it counts as absent.
            older: names that the model takes besides its fields.
            forms: what a text must be, by the pattern that says so.
        """
        self.model = model
        self._prefix = prefix
        self._variables = dict(variables or {})
        self._parse, self._empty = parse, empty
        self.forms: Mapping[str, str] = {**wording.FORMS, **(forms or {})}
        self._fields = {self.variable(name): name for name in (*model.model_fields, *older)}

    def variable(self, field: str) -> str:
        """The variable of a field at the top."""
        return self._variables.get(field, f"{self._prefix}{field.upper()}")

    def add_flags(
        self,
        parser: argparse.ArgumentParser,
        short: Mapping[str, str] | None = None,
        only: Collection[str] | None = None,
    ) -> None:
        """A flag for each field, with its variable and its default in the help; what it is given is read by `read`.

        Args:
            parser: gets the flags.
            short: further names, by field.
            only: the fields that have a flag; None: all.
        """
        for name, field in self.model.model_fields.items():
            if only is not None and name not in only:
                continue
            names = (*([short[name]] if short and name in short else ()), flag(name))
            default = _shown(field)
            about = f"{field.description} [{self.variable(name)}{f'; {default}' if default else ''}]".replace(
                "%", "%%"
            )
            kind = _kind(field)
            if kind is bool:
                parser.add_argument(*names, dest=name, action=argparse.BooleanOptionalAction, help=about)
            elif typing.get_origin(kind) is tuple:
                parser.add_argument(*names, dest=name, action="append", metavar=_metavar(name), help=about)
            else:
                # shown, not enforced here: what is wrong is said of all settings together
                metavar = f"{{{','.join(choices)}}}" if (choices := _choices(kind)) else _metavar(name)
                parser.add_argument(*names, dest=name, metavar=metavar, help=about)

    def read(self, flags: Mapping[str, Any], environ: Mapping[str, str]) -> S:
        """Settings from flags (None: not given), else variables, else defaults.

        Raises:
            SettingsInvalid: with every problem, each naming flag and variable.
        """
        data, problems = self.collected({}, environ)
        data |= {name: value for name, value in flags.items() if value is not None}
        return self.checked(data, problems, self._by_flag)

    def collected(self, data: dict[str, Any], environ: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
        """`data`, overridden by the variables that name a field, and what is wrong with those.

        Other variables are left alone: other parts of Toolcrib have theirs.
        """
        problems: list[str] = []
        for name, text in sorted(environ.items()):
            inner: list[str] = []
            field = self._fields.get(name)
            if field is None and name.startswith(self._prefix):
                top, *inner = name.removeprefix(self._prefix).split(NESTED)
                field = self._fields.get(f"{self._prefix}{top.upper()}")
            if field is None or (not text and not self._empty(field)):
                continue
            try:
                _put(data, [field, *map(str.lower, inner)], self._parse(text))
            except TypeError:
                problems.append(f"{name}: cannot be read")
            except ValueError as error:
                problems.append(f"{name}: cannot be read: {error}")
        return data, problems

    def checked(
        self,
        data: Mapping[str, Any],
        problems: Collection[str] = (),
        place: Callable[[tuple[int | str, ...]], str] = lambda loc: ".".join(map(str, loc)) or "settings",
    ) -> S:
        """The settings of `data`.

        Args:
            data: by field.
            problems: what is wrong already.
            place: what a field at fault is called.

        Raises:
            SettingsInvalid: with every problem. None quotes a value: one may be a secret in the wrong place.
        """
        found = list(problems)
        try:
            settings = self.model.model_validate(data)
        except ValidationError as error:
            for each in error.errors(include_input=False, include_url=False):
                where = place(each["loc"])
                said = wording.said(each, self.forms)
                found.append(f"{where}: {said}" if where else said)
            raise SettingsInvalid(found) from None
        if found:
            raise SettingsInvalid(found)
        return settings

    def _by_flag(self, loc: tuple[int | str, ...]) -> str:
        return f"{flag(str(loc[0]))} ({self.variable(str(loc[0]))})" if loc else ""


def flag(field: str) -> str:
    """The command line's flag for a field."""
    return "--" + field.replace("_", "-")


def _metavar(field: str) -> str:
    return field.rpartition("_")[2].upper()


def _kind(field: FieldInfo) -> Any:
    """The type of a field, without None."""
    kind = field.annotation
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        first, *others = (k for k in typing.get_args(kind) if k is not types.NoneType)
        return first if not others else kind
    return kind


def _choices(kind: Any) -> list[str]:
    """The only values of a field, where its type lists them."""
    if typing.get_origin(kind) is Literal:
        return list(typing.get_args(kind))
    return [each.value for each in kind] if isinstance(kind, type) and issubclass(kind, Enum) else []


def _shown(field: FieldInfo) -> str:
    if field.is_required():
        return ""
    default = field.get_default(call_default_factory=True)
    if isinstance(default, bool):
        return "on" if default else "off"
    if isinstance(default, tuple):
        return ", ".join(map(str, default))
    return "" if default is None else str(default.value if isinstance(default, Enum) else default)


def _put(data: dict[str, Any], keys: list[str], value: Any) -> None:
    for key in keys[:-1]:
        inner = data.setdefault(key, {})
        if not isinstance(inner, dict):
            raise TypeError(key)
        data = inner
    data[keys[-1]] = value
