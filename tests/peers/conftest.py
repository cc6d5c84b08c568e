"""What several tests with servers of others need."""

from typing import Any

import pytest

from toolcrib_registry.upstream import eras


@pytest.fixture(params=["as it is", "handshake"])
def era(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The era in which the server is spoken to: the one that it offers, or the earlier one."""
    if request.param == "handshake":

        async def none(*_: Any) -> None:
            return None

        # as a client that does not know the stateless era
        monkeypatch.setattr(eras, "discovered", none)
    return str(request.param)
