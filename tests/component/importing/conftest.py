"""The importer under test."""

from collections.abc import AsyncIterator

import pytest

from imports_harness import Imports, importing


@pytest.fixture
async def imports() -> AsyncIterator[Imports]:
    """One that works."""
    async with importing() as made:
        yield made
