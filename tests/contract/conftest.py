"""The databases on which the sessions' store keeps its promises."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from realparts.postgres_server import Postgres
from toolcrib_cli.session_store.database import Database

_NUMBERS = count()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.real)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'sessions.sqlite'}"
    server: Postgres = request.getfixturevalue("postgres_server")
    return server.database(f"store_{tmp_path.name.replace('-', '_')}_{next(_NUMBERS)}".lower())


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    with Database.at(url) as opened:
        yield opened
