"""A scripted model endpoint: OpenAI's chat completions without a model, for tests, demos and first steps.

It is no language model and says so: its one model is called `toolcrib-scripted`, every answer carries the header
`X-Toolcrib-Scripted` and the system fingerprint `toolcrib-scripted-1`. The same request always has the same answer.

What it does with a task (the last user message):

* lines `call NAME {"argument": "value"}` are carried out in their order, one in each reply, whether or not such a
  function is offered; NAME is a function's name or a tool id;
* without such lines it picks the offered functions whose names or descriptions share words with the task (at most
  `MAX_PICKED`) and fills required arguments by simple rules: what stands in quotes, a file name, an arithmetic
  expression, a number;
* where tools have to be found first (the modes that search, in functions or in plain text), it searches for the task,
  chooses what fits by the same rules, and calls that;
* when every planned call has its answer, it replies with a summary of them.

Run it: `python -m toolcrib_runner.scripted --port 8090`. It listens on loopback and serves `/v1/models` and
`/v1/chat/completions` (no streaming), with bounded input.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from toolcrib.model_names import model_name
from toolcrib_runner import scripted_discovery as discovery

MODEL = "toolcrib-scripted"
FINGERPRINT = "toolcrib-scripted-1"
MAX_BODY = 4 * 1024 * 1024
MAX_TASK = 20_000
"""Characters of a task that are read."""
MAX_PICKED = 3
MAX_SHOWN = 600
_CALL = re.compile(r"^[ \t]*call[ \t]+([A-Za-z0-9_./-]{1,512})(?:[ \t]+(\{.*\}))?[ \t]*$", re.MULTILINE)
_WORD = re.compile(r"[a-z0-9]+")
_COMMON_WORDS = (
    "a an and are as at be by can do does for from has have how i in is it its me much many of on one or please s "
    "that the their them there this to use using was what when where which who will with you your"
)
_COMMON = frozenset(_COMMON_WORDS.split())


def plan(task: str, functions: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """The calls for a task: (function name, arguments as JSON text). Pure."""
    scripted = [(_function_name(name), written or "{}") for name, written in _CALL.findall(task)]
    if scripted:
        return scripted
    words = _words(task)
    scored = []
    for function in functions:
        name = str(function.get("name", ""))
        shared = 3 * len(words & _words(name)) + len(words & _words(str(function.get("description", ""))))
        if shared >= 2:
            scored.append((-shared, name, function))
    scored.sort(key=lambda found: found[:2])
    return [(name, json.dumps(_arguments(task, function))) for _, name, function in scored[:MAX_PICKED]]


def reply(messages: Sequence[Mapping[str, Any]], functions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The assistant's message that follows `messages`. Pure."""
    asked = [i for i, m in enumerate(messages) if m.get("role") == "user"]
    if not asked:
        return {"role": "assistant", "content": "There is no task."}
    system = "\n".join(_content(m) for m in messages if m.get("role") == "system")
    if discovery.concerns(system, [str(f.get("name")) for f in functions]):
        task = _content(messages[asked[0]])[:MAX_TASK]
        return _found_first(task, system, messages[asked[0] + 1 :], native=bool(functions))
    task, since = _content(messages[asked[-1]])[:MAX_TASK], messages[asked[-1] + 1 :]
    answers = [m for m in since if m.get("role") == "tool"]
    called = [c["function"]["name"] for m in since for c in m.get("tool_calls") or ()]
    planned = plan(task, functions)
    # Functions may come and go while a task runs, so what was picked by words is told by name, not by number.
    uncalled = [call for call in planned if call[0] not in called][: max(0, MAX_PICKED - len(called))]
    left = planned[len(called) :] if _CALL.search(task) else uncalled
    if left:
        return _calling(len(called), *left[0])
    return {
        "role": "assistant",
        "content": _summary([(n, _content(a)) for n, a in zip(called, answers, strict=False)]),
    }


def _found_first(
    task: str, system: str, since: Sequence[Mapping[str, Any]], *, native: bool
) -> dict[str, Any]:
    step = discovery.next_step(task, system, since, plan)
    if not step.kind:
        return {"role": "assistant", "content": _summary(discovery.results(since))}
    if native:
        return _calling(len(since), step.kind, json.dumps(step.given()))
    return {"role": "assistant", "content": step.line()}


def _calling(number: int, name: str, arguments: str) -> dict[str, Any]:
    digest = hashlib.sha256(f"{number}:{name}:{arguments}".encode()).hexdigest()[:24]
    call = {"id": f"call_{digest}", "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _summary(done: Sequence[tuple[str, str]]) -> str:
    if not done:
        return "No function offered to me fits this task. (I am a script, not a model.)"
    lines = [f"{name}: {answer[:MAX_SHOWN]}" for name, answer in done]
    return "\n".join([f"Done, with {len(done)} call{'s' if len(done) > 1 else ''}.", *lines])


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(p.get("text", "")) for p in content if isinstance(p, dict))
    return content if isinstance(content, str) else ""


def _function_name(name: str) -> str:
    """A tool id as the function that stands for it; anything else is taken for a function's name."""
    return model_name(name, name) if "/" in name else name


def _words(text: str) -> set[str]:
    found = set(_WORD.findall(text.lower())) - _COMMON
    return {w.removesuffix("s") if len(w) > 3 else w for w in found}


def _arguments(task: str, function: Mapping[str, Any]) -> dict[str, Any]:
    schema = function.get("parameters")
    schema = schema if isinstance(schema, dict) else {}
    properties = schema.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    quoted = [a or b for a, b in re.findall(r'"([^"]*)"|\'([^\']*)\'', task)]
    filled: dict[str, Any] = {}
    for name in schema.get("required") or ():
        about = properties.get(name)
        filled[name] = _value(task, str(name), about if isinstance(about, dict) else {}, quoted)
    return filled


def _value(task: str, name: str, about: Mapping[str, Any], quoted: list[str]) -> Any:
    kind, words = about.get("type"), _words(name.replace("_", " "))
    if isinstance(about.get("enum"), list) and about["enum"]:
        return next((v for v in about["enum"] if str(v).lower() in task.lower()), about["enum"][0])
    if kind in ("integer", "number"):
        number = re.search(r"-?\d+(\.\d+)?", task)
        return (int(float(number[0])) if kind == "integer" else float(number[0])) if number else 1
    if kind == "boolean":
        return True
    if kind == "array":
        return quoted
    if kind == "object":
        return {}
    if "expression" in words:
        found = max(re.findall(r"[\d(][\d\s.+*/%()-]*[\d)]", task), key=len, default="")
        return found.strip() or (quoted[0] if quoted else "1 + 1")
    if words & {"file", "filename", "path"}:
        named = re.search(r"[\w-]+\.[A-Za-z]{1,5}\b", task)
        if named:
            return named[0]
    return quoted.pop(0) if quoted else task[:500]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "toolcrib-scripted"
    sys_version = ""
    timeout = 30
    # Headers and body leave in one segment: without this, Nagle and delayed acknowledgements cost 40 ms an answer.
    wbufsize = -1

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            model = {"id": MODEL, "object": "model", "created": 0, "owned_by": "toolcrib"}
            return self._answer(200, {"object": "list", "data": [model]})
        return self._error(404, "unknown path; use /v1/models or /v1/chat/completions")

    def do_POST(self) -> None:
        length = self.headers.get("content-length", "")
        if not length.isdecimal() or int(length) > MAX_BODY:
            self.close_connection = True
            return self._error(413, f"send a body of at most {MAX_BODY} bytes, with Content-Length")
        body = self.rfile.read(int(length))
        if self.path != "/v1/chat/completions":
            return self._error(404, "unknown path; use /v1/models or /v1/chat/completions")
        try:
            request = json.loads(body)
            messages = request["messages"]
            functions = [t["function"] for t in request.get("tools") or () if t.get("type") == "function"]
            if request.get("stream"):
                return self._error(400, "the scripted endpoint does not stream")
            message = reply(messages, functions)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return self._error(400, "the request is not a chat completion request")
        return self._answer(200, completion(message, len(body)))

    def _error(self, status: int, message: str) -> None:
        self._answer(status, {"error": {"message": message, "type": "invalid_request_error", "code": None}})

    def _answer(self, status: int, document: Mapping[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Toolcrib-Scripted", "scripted endpoint: no language model answers here")
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: requests hold other people's text."""


def completion(message: Mapping[str, Any], asked: int) -> dict[str, Any]:
    """The message as a chat completion; four characters count as a token. Pure."""
    written = len(json.dumps(message))
    return {
        "id": "chatcmpl-" + hashlib.sha256(json.dumps(message, sort_keys=True).encode()).hexdigest()[:24],
        "object": "chat.completion",
        "created": 0,
        "model": MODEL,
        "system_fingerprint": FINGERPRINT,
        "choices": [
            {
                "index": 0,
                "message": dict(message),
                "finish_reason": "tool_calls" if message.get("tool_calls") else "stop",
                "logprobs": None,
            }
        ],
        "usage": {
            "prompt_tokens": asked // 4,
            "completion_tokens": written // 4,
            "total_tokens": asked // 4 + written // 4,
        },
    }


class _Server(ThreadingHTTPServer):
    daemon_threads = True


@contextmanager
def serving(host: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
    """Serve in the background; yields the base URL (with `/v1`).

    Raises:
        OSError: nothing can listen there.
    """
    server = _Server((host, port), _Handler)
    thread = threading.Thread(
        target=server.serve_forever, args=(0.05,), name="toolcrib-scripted", daemon=True
    )
    thread.start()
    try:
        yield f"http://{host}:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def run(host: str = "127.0.0.1", port: int = 8090) -> None:
    """Serve until interrupted; errors as `serving`."""
    with serving(host, port) as url:
        try:
            print(f"scripted model endpoint (no language model) at {url}, model {MODEL}", flush=True)
            threading.Event().wait()
        except KeyboardInterrupt:
            return


def main(argv: Sequence[str] | None = None) -> int:
    """The command line of `python -m toolcrib_runner.scripted`."""
    parser = argparse.ArgumentParser(
        prog="toolcrib_runner.scripted", description="A scripted model endpoint."
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8090)
    options = parser.parse_args(argv)
    # It is ignored from the start where a shell runs this in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run(options.host, options.port)
    except (OSError, OverflowError) as error:  # a port beyond 65535 is an OverflowError
        why = error.strerror if isinstance(error, OSError) else "no such port"
        print(f"error: cannot listen on {options.host}:{options.port}: {why}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
