"""What several modules of real-cluster tests share."""

from collections.abc import Iterator

import pytest

from admission_server import Admission, admission_server


@pytest.fixture(scope="session")
def admission() -> Iterator[Admission]:
    """An API server with the admission policies in force: about 8 s, once."""
    with admission_server() as running:
        yield running
