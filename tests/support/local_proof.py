"""A stub in the place of a local mode: what it answers where it has to prove that it is the one of a data folder."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from stub_server import Answer, Request
from toolcrib_cli.local import listener


def proven(request: Request, data: Path) -> bool:
    """Answer a request for the proof as the local mode of `data` does; False: it is another request."""
    asked = urlsplit(request.path)
    if asked.path != listener.PATH:
        return False
    state = json.loads((data / "local.json").read_text())
    (nonce,) = parse_qs(asked.query)["nonce"]
    found = listener.proof(state["key"], state["url"], nonce)
    request.send(Answer(json.dumps({"proof": found}).encode()))
    return True
