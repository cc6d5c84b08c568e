"""The page about settings."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from reference_pages.markdown import code, default_of, table

from toolcrib.settings import Source, flag
from toolcrib.telemetry import logs
from toolcrib_cli.memory.settings import SOURCE as MEMORY
from toolcrib_operator import options as operator_options
from toolcrib_operator import settings as operator_settings
from toolcrib_operator.settings import RegistrationSettings
from toolcrib_registry.settings import RegistrySettings
from toolcrib_runner.settings import SOURCE as RUNNER


def settings_page() -> str:
    """Every setting of the services."""
    text = "# Settings\n\nWrong settings stop the start, all named at once.\n\n## Registry\n\n"
    text += "A YAML file (`--config` or `TOOLCRIB_CONFIG`), overridden by variables: `TOOLCRIB_` and the field, `__` between nested\n"
    text += "names (`TOOLCRIB_STORE__KIND=weaviate`); values of variables are read as YAML. An example of a whole file:\n"
    text += "[examples/cluster/registry.yaml](../../examples/cluster/registry.yaml).\n\n"
    text += table(("field", "default", "what"), _model_rows(RegistrySettings))
    text += "\n## Operator\n\nOptions of `toolcrib operator`, or variables.\n\n"
    text += table(("option", "variable", "default", "what"), _flag_rows(operator_options.SOURCE))
    text += "\nFixed in this release, each with its reason in `operator/toolcrib_operator/settings.py`:\n\n"
    text += table(("group", "name", "value", "what"), _group_rows())
    text += "\n## Agent runner\n\nOptions of `toolcrib agent run`, or variables. `OPENAI_API_KEY` is read where no key file is given.\n\n"
    text += table(("option", "variable", "default", "what"), _flag_rows(RUNNER))
    text += "\n## Memory\n\nOptions of `toolcrib memory`, or variables: [examples/memory](../../examples/memory/README.md).\n\n"
    text += table(("option", "variable", "default", "what"), _flag_rows(MEMORY))
    text += "\n## Logs and traces\n\nVariables of all services. OpenTelemetry's own variables (`OTEL_…`) switch traces on:\n"
    text += "[Logs, request ids and traces](../guides/observability.md).\n\n"
    return text + table(("variable", "default", "what"), _log_rows())


def _log_rows() -> Iterator[tuple[str, str, str]]:
    levels = ", ".join(logs.LEVELS).lower()
    yield code(logs.LEVEL), code("info"), f"How much goes to standard error: {levels}."
    yield (
        code(logs.FORMAT),
        "",
        f"{' or '.join(logs.FORMS)}; else text where standard error is a terminal, json elsewhere.",
    )


def _model_rows(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str, str]]:
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _model_rows(inner, f"{prefix}{name}.")
            continue
        default = field.get_default(call_default_factory=True)
        if field.is_required():
            shown = "**required**"
        elif isinstance(default, tuple | list):
            shown = code(", ".join(str(getattr(v, "value", v)) for v in default))
        elif isinstance(default, bool):
            shown = code("true" if default else "false")
        else:
            shown = default_of(default) if default != {} else ""
        yield code(f"{prefix}{name}"), shown, field.description or ""
        item = next((a for a in getattr(inner, "__args__", ()) if isinstance(a, type)), None)
        if item is not None and issubclass(item, BaseModel):
            yield from _model_rows(item, f"{prefix}{name}[].")


def _flag_rows(source: Source[Any]) -> Iterator[tuple[str, str, str, str]]:
    for name, field in source.model.model_fields.items():
        default = field.get_default()
        shown = ", ".join(default) if isinstance(default, tuple) else default
        told = "**required**" if field.is_required() else default_of(shown)
        yield code(flag(name)), code(source.variable(name)), told, field.description or ""


def _group_rows() -> Iterator[tuple[str, str, str, str]]:
    defaults = operator_settings.OperatorSettings(registration=RegistrationSettings("toolcrib-runtime"))
    changed = ["--prove-after", "1", "--runtime-namespace", "another", "--runtime-registration"]
    settable = operator_options.parse(["--registry-url", "http://registry", *changed], {})
    options = operator_options.OperatorOptions.model_fields
    for group in ("loop", "publisher", "index", "watch", "registration"):
        value = getattr(defaults, group)
        for name, what in _attribute_docs(type(value)):
            given = getattr(value, name)
            # a value that an option changes stands in the table of options
            if name in options or given != getattr(getattr(settable, group), name):
                continue
            shown = " to ".join(map(str, given)) if isinstance(given, tuple) else default_of(given)
            yield group, code(name), shown.strip("`") and code(shown.strip("`")), what


def _attribute_docs(kind: type) -> Iterator[tuple[str, str]]:
    """Fields of a dataclass with the text that stands under each."""
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(node, ast.ClassDef)
    names = {f.name for f in dataclasses.fields(kind)}
    for field, text in zip(node.body, node.body[1:], strict=False):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(what))):
                if name in names:
                    yield name, " ".join(what.split())
