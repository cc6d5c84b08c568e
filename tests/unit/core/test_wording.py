"""Errors of pydantic in words: what a value must be, without a regular expression or a type of Python."""

from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, ValidationError

from toolcrib import names, wording
from toolcrib.wire.simple import Registration
from toolcrib_registry.http.problems import FORMS
from toolcrib_registry.settings import SOURCE as REGISTRY
from toolcrib_runner.settings import SOURCE as RUNNER


class _Model(BaseModel):
    scopes: tuple[Annotated[str, Field(pattern=names.SCOPE)], ...] = ()
    name: str = Field(default="a", pattern="^a+$")
    table: dict[str, int] = {}
    size: int = Field(default=1, ge=1)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"scopes": "a:use"}, "must be a list"),
        ({"scopes": ["a use"]}, "must be a scope, as in calculator:use: letters"),
        ({"name": "b"}, "must be many a"),
        ({"table": []}, "must be an object"),
        ({"size": 0}, "Input should be greater than or equal to 1"),
    ],
)
def test_an_error_says_what_the_value_must_be(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        _Model.model_validate(given)
    (error,) = refused.value.errors()

    assert wording.said(error, {**wording.FORMS, "^a+$": "many a"}).startswith(said)


def test_a_pattern_that_nobody_described_is_not_shown() -> None:
    with pytest.raises(ValidationError) as refused:
        _Model.model_validate({"name": "b"})

    assert "^" not in wording.said(refused.value.errors()[0])


def patterns(value: Any) -> set[str]:
    """The patterns of a JSON schema."""
    if isinstance(value, list):
        return {p for each in value for p in patterns(each)}
    if not isinstance(value, dict):
        return set()
    own = {value["pattern"]} if isinstance(value.get("pattern"), str) else set()
    return own | patterns(list(value.values()))


@pytest.mark.parametrize(
    ("model", "forms"),
    [(REGISTRY.model, REGISTRY.forms), (RUNNER.model, RUNNER.forms), (Registration, FORMS)],
)
def test_every_pattern_of_a_setting_and_of_a_registration_is_described(
    model: type[BaseModel], forms: dict[str, str]
) -> None:
    assert patterns(model.model_json_schema()) <= forms.keys()
