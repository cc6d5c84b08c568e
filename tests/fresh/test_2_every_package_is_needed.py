"""The install step of `make cluster-test` brings every program, and would not without any one of its packages.

For each package apt-get tells what would be on the machine if the package were not on the lists. All else is removed in
a layer over the machine that has everything, and there the program must be missed.
"""

import pytest

from fresh_debian import installed, missing, remove, told
from realparts import debian
from realparts.freshroot import FreshMachine

pytestmark = pytest.mark.fresh


def test_the_install_step_brings_every_program(
    fresh_machine: FreshMachine, without: dict[str, set[str]], after: set[str]
) -> None:
    assert missing(fresh_machine) == ([], [])
    assert after == without[""], "apt-get foretold other packages than it installed"


@pytest.mark.parametrize("package", debian.PROGRAMS)
def test_without_a_package_its_program_is_missed_unless_another_brings_it(
    fresh_machine: FreshMachine, without: dict[str, set[str]], after: set[str], package: str
) -> None:
    expected = [] if package in debian.BROUGHT_ALONG else [package]
    with told(f"without {package}"), FreshMachine(fresh_machine) as layer:
        remove(layer, after - without[package])

        assert installed(layer) == without[package]
        assert missing(layer) == (expected, expected)


@pytest.mark.parametrize(("package", "bringer"), debian.BROUGHT_ALONG.items())
def test_the_package_named_in_the_table_brings_the_other(
    brought: dict[str, set[str]], package: str, bringer: str
) -> None:
    assert package in brought[bringer]
