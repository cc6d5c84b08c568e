"""What a tool says when it cannot do what was asked."""

from http import HTTPStatus

from starlette.responses import JSONResponse


class ToolError(Exception):
    """A call that a tool refuses, in words that help the caller to mend it.

    `status` is the HTTP status, `code` a stable snake_case word, `detail` a sentence for a person or a model.
    """

    def __init__(self, status: HTTPStatus, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail


def invalid_argument(detail: str) -> ToolError:
    """The arguments are not what the tool takes (400)."""
    return ToolError(HTTPStatus.BAD_REQUEST, "invalid_argument", detail)


def impossible(code: str, detail: str) -> ToolError:
    """The arguments are well formed, but there is no answer to them (422)."""
    return ToolError(HTTPStatus.UNPROCESSABLE_ENTITY, code, detail)


def problem_response(status: int, code: str, detail: str) -> JSONResponse:
    """An RFC 9457 problem document with the extension member `code`."""
    return JSONResponse(
        {
            "type": "about:blank",
            "title": HTTPStatus(status).phrase,
            "status": int(status),
            "detail": detail,
            "code": code,
        },
        status_code=status,
        media_type="application/problem+json",
    )
