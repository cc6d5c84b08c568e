"""Settings: flags before variables before defaults, each problem named, no value quoted."""

import argparse
import json
from enum import StrEnum
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

from toolcrib.errors import SettingsInvalid
from toolcrib.settings import Source


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Lamp(BaseModel):
    model_config = ConfigDict(extra="forbid")
    watts: int = Field(default=5, description="How much.")


class House(BaseModel):
    model_config = ConfigDict(extra="forbid")
    owner: str = Field(description="Whose it is.", pattern=r"^[a-z]+$")
    rooms: int = Field(default=3, ge=1, description="At 100 % of them.")
    note: str = Field(default="none", description="What is said of it.")
    doors: tuple[str, ...] = Field(default=(), description="Where to go in.")
    roof: Literal["flat", "steep"] | None = Field(default=None, description="Its form.")
    colour: Colour = Field(default=Colour.RED, description="Of the walls.")
    heated: bool = Field(default=False, description="Whether it is warm.")
    lamp: Lamp = Field(default=Lamp(), description="Its light.")


SOURCE = Source(House, "HOUSE_", variables={"owner": "HOUSE_NAME"}, empty=lambda field: field == "note")


def parsed(*arguments: str) -> dict[str, Any]:
    parser = argparse.ArgumentParser(exit_on_error=False)
    SOURCE.add_flags(parser, short={"rooms": "-r"}, only=set(House.model_fields) - {"lamp"})
    return vars(parser.parse_args(arguments))


def test_a_flag_counts_before_its_variable_and_that_before_the_default() -> None:
    flags = parsed("-r", "4", "--doors", "north", "--doors", "south", "--roof", "flat", "--heated")
    environ = {"HOUSE_NAME": "ann", "HOUSE_ROOMS": "9", "HOUSE_COLOUR": "blue", "HOUSE_HEATED": "no"}

    house = SOURCE.read(flags, environ)

    assert house == House(
        owner="ann", rooms=4, doors=("north", "south"), roof="flat", colour=Colour.BLUE, heated=True
    )


def test_a_switch_that_is_on_by_its_variable_can_be_turned_off() -> None:
    assert not SOURCE.read(parsed("--no-heated"), {"HOUSE_NAME": "ann", "HOUSE_HEATED": "yes"}).heated


def test_an_empty_variable_counts_as_absent_unless_it_means_something() -> None:
    house = SOURCE.read({}, {"HOUSE_NAME": "ann", "HOUSE_ROOMS": "", "HOUSE_NOTE": ""})

    assert (house.rooms, house.note) == (3, "")


def test_variables_of_others_are_left_alone() -> None:
    assert (
        SOURCE.read({}, {"HOUSE_NAME": "ann", "HOUSE_OWNER": "7", "HOUSE_GARDEN": "x", "ROOMS": "0"}).rooms
        == 3
    )


def test_every_problem_is_named_at_once_with_flag_and_variable_and_without_the_value() -> None:
    with pytest.raises(SettingsInvalid) as raised:
        SOURCE.read(parsed("--rooms", "hunter2", "--roof", "hunter3"), {"HOUSE_NAME": "hunter4"})

    assert [problem.partition(":")[0] for problem in raised.value.problems] == [
        "--owner (HOUSE_NAME)",
        "--rooms (HOUSE_ROOMS)",
        "--roof (HOUSE_ROOF)",
    ]
    assert "hunter" not in str(raised.value)


def test_a_nested_field_is_set_by_its_variable_over_what_a_file_says() -> None:
    source = Source(House, "HOUSE_", parse=json.loads)
    file = {"owner": "ann", "rooms": 2, "lamp": {"watts": 7}}

    data, problems = source.collected(file, {"HOUSE_LAMP__WATTS": "9", "HOUSE_ROOMS": "4"})
    house = source.checked(data, problems)

    assert (house.owner, house.rooms, house.lamp.watts) == ("ann", 4, 9)


@pytest.mark.parametrize(
    ("variable", "text", "said"),
    [
        ("HOUSE_ROOMS", "{", "HOUSE_ROOMS: cannot be read: "),
        ("HOUSE_OWNER__NAME", "1", "HOUSE_OWNER__NAME: cannot be read"),
        ("HOUSE_LAMP__WATTS", '"x"', "lamp.watts: "),
        ("HOUSE_LAMP__COLOUR", "1", "lamp.colour: "),
    ],
)
def test_a_wrong_nested_variable_is_named(variable: str, text: str, said: str) -> None:
    source = Source(House, "HOUSE_", parse=json.loads)

    with pytest.raises(SettingsInvalid) as raised:
        source.checked(*source.collected({"owner": "ann"}, {variable: text}))

    assert any(problem.startswith(said) for problem in raised.value.problems)


def test_the_help_names_variable_default_and_choices(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed("--help")

    said = " ".join(capsys.readouterr().out.split())
    for expected in (
        "--owner OWNER Whose it is. [HOUSE_NAME]",
        "-r ROOMS, --rooms ROOMS At 100 % of them. [HOUSE_ROOMS; 3]",
        "--roof {flat,steep} Its form. [HOUSE_ROOF]",
        "--colour {red,blue} Of the walls. [HOUSE_COLOUR; red]",
        "--heated, --no-heated Whether it is warm. [HOUSE_HEATED; off]",
    ):
        assert expected in said
