"""The programs behind the example manifests: five small tools over plain HTTP.

`toolcrib example-tools` runs them (`run`), the local mode runs them in its own event loop (`serving`), and a
test may mount them directly (`create_app`). They hold no secrets, write nothing but their own data folder,
and treat their callers as hostile: an agent's arguments are written by a model.
"""

from toolcrib_cli.example_tools.app import create_app
from toolcrib_cli.example_tools.assertion import CallAssertions
from toolcrib_cli.example_tools.keys import JWKS_PATH, keys_at
from toolcrib_cli.example_tools.samples import Samples, prepare_samples
from toolcrib_cli.example_tools.server import Address, run, serving

__all__ = [
    "JWKS_PATH", "Address", "CallAssertions", "Samples", "create_app", "keys_at", "prepare_samples", "run", "serving",
]  # fmt: skip
