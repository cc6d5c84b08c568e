"""An MCP server over standard input and output, of the handshake era, without an SDK: python mcp_stdio_stub.py [MODE]...

Tools: `env` tells names of its environment, descriptors and ids; `slow` never answers; `die` ends it; `huge` answers with a
line that is too long; `asks` asks for a sample, and tells what it got; `flood` tells of 2,000 changes before it answers;
`secret` tells a variable; `whispers` tells it as progress; `deaf` reads nothing any more; `child` starts a process that
outlives it, and tells its id. Modes: `chatty` prints what is no JSON; `silent` says nothing to `server/discover`; `dies` ends
at the first line; `stateless` is of the stateless era.
"""

import json
import os
import subprocess
import sys
import time
from typing import Any

NAMES = ["asks", "child", "deaf", "die", "env", "flood", "huge", "secret", "slow", "whispers"]


def say(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def text(said: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": said if isinstance(said, str) else json.dumps(said)}]}


def called(name: str, token: Any) -> dict[str, Any]:
    if name == "env":
        fds = (
            sorted(int(fd) for fd in os.listdir("/proc/self/fd"))
            if os.path.isdir("/proc/self/fd")
            else [0, 1, 2]
        )
        ids = {"pid": os.getpid(), "group": os.getpgrp(), "session": os.getsid(0)}
        # the last one is that of the listing
        return text({"names": sorted(os.environ), "home": os.environ["HOME"], "fds": fds[:-1], **ids})
    if name == "secret":
        return text(os.environ.get("KEY", ""))
    if name == "whispers":
        for message in (os.environ["KEY"], "half"):
            say(
                method="notifications/progress",
                params={"progressToken": token, "progress": 1, "message": message},
            )
    if name == "deaf":
        time.sleep(300)
    if name == "child":
        return text(str(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"]).pid))
    if name == "huge":
        return text("x" * (9 << 20))
    if name == "die":
        sys.stderr.write("dying\n")
        sys.exit(3)
    if name == "asks":
        say(id="mine", method="sampling/createMessage", params={})
        return text(json.loads(sys.stdin.readline())["error"]["message"])
    if name == "flood":
        for _ in range(2_000):
            say(method="notifications/tools/list_changed")
    return text("done")


def main() -> None:
    if "chatty" in sys.argv:
        print("Starting up …", flush=True)
    if "dies" in sys.argv:
        sys.stdin.readline()
        sys.exit(7)
    for line in sys.stdin:
        message = json.loads(line)
        method, id_ = message.get("method"), message.get("id")
        if method == "initialize":
            facts = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "stub", "version": "1"},
            }
            say(id=id_, result=facts)
        elif method == "tools/list":
            tools = [
                {"name": name, "description": f"The tool {name}.", "inputSchema": {"type": "object"}}
                for name in NAMES
            ]
            say(id=id_, result={"tools": tools})
        elif method == "tools/call":
            name, meta = message["params"]["name"], message["params"].get("_meta", {})
            if name != "slow":
                say(id=id_, result=called(name, meta.get("progressToken")))
        elif method == "server/discover" and "stateless" in sys.argv:
            say(id=id_, result={"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}})
        elif id_ is not None and not (method == "server/discover" and "silent" in sys.argv):
            say(id=id_, error={"code": -32601, "message": "unknown"})


main()
