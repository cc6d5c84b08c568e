"""A model endpoint that answers byte by byte has no more time than one that does not answer."""

from collections.abc import Callable

import pytest

from stub_server import Request, handling
from toolcrib_runner.adapters.openai_model import OpenAIModel
from toolcrib_runner.errors import ModelUnavailable


@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize(
    "ask",
    [
        lambda model: model.check(0.3),
        lambda model: model.complete([{"role": "user", "content": "x"}], [], 0.3),
    ],
    ids=["check", "complete"],
)
def test_a_response_that_comes_byte_by_byte_ends_in_time(
    ask: Callable[[OpenAIModel], object], status: int
) -> None:
    def drip(request: Request) -> None:
        request.begin({"content-type": "application/json", "content-length": "1000"}, status)
        for _ in range(200):
            if request.gone(0.02):
                return
            request.write(b" ")
        request.last()

    with handling(drip) as port:
        model = OpenAIModel(f"http://127.0.0.1:{port}/v1", "m", lambda: "none")
        try:
            with pytest.raises(ModelUnavailable, match="did not respond in time"):
                ask(model)
        finally:
            model.close()
