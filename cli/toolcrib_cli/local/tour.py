"""What a newcomer sees when the local mode is up: who discovers what, one call made and counted, what to try next.

Everything shown is asked of the running registry over HTTP, with real tokens.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from toolcrib.text import truncate
from toolcrib_cli import output

MAX_AGENTS = 12
_EDIT = "edit a binding's scopes or a tool's state under the manifests: agents see it within a second"
_SHOWN_TOOLS = 6


@dataclass(frozen=True, slots=True)
class Tour:
    """One look around.

    `mint` makes a token for `namespace/name`.
    """

    url: str
    accounts: Sequence[str]
    mint: Callable[[str], str]
    data: str

    async def show(self) -> None:
        """Print who discovers what, then call one tool and show that it was counted."""
        # plain HTTP on loopback: to load the system's authorities would hold the loop for 80 ms
        async with httpx2.AsyncClient(
            base_url=self.url,
            trust_env=False,
            timeout=15,
            verify=False,
        ) as http:
            found = {account: await self._discover(http, account) for account in self.accounts[:MAX_AGENTS]}
            rows = [(account, len(tools), _names(tools)) for account, tools in found.items()]
            output.heading("Agents and the tools they discover now")
            output.table(("agent", "tools", "names"), rows)
            if len(self.accounts) > MAX_AGENTS:
                output.line(f"… and {len(self.accounts) - MAX_AGENTS} more accounts")
            await self._call(http, found)
        self._next_steps()

    async def _discover(self, http: httpx2.AsyncClient, account: str) -> list[dict[str, Any]]:
        answer = await http.get("/", headers=self._headers(account))
        tools: list[dict[str, Any]] = answer.json()["tools"]
        return tools

    async def _call(self, http: httpx2.AsyncClient, found: dict[str, list[dict[str, Any]]]) -> None:
        caller = next(
            (a for a, tools in found.items() if any(t["name"] == "calculator" for t in tools)), None
        )
        if caller is None:
            return
        output.heading("One call, made and counted")
        arguments = {"expression": "2 * (3 + 4)"}
        answer = await http.post("/tools/calculator", json=arguments, headers=self._headers(caller))
        output.line(
            f"{caller} calls calculator(expression='2 * (3 + 4)'): {answer.status_code} {truncate(answer.text, 120)}"
        )
        outsider = next(
            (a for a, tools in found.items() if all(t["name"] != "calculator" for t in tools)), None
        )
        if outsider is not None:
            refused = await http.post("/tools/calculator", json=arguments, headers=self._headers(outsider))
            output.line(
                f"{outsider} tries the same: {refused.status_code} {truncate(refused.json().get('code', ''), 120)}"
            )
        metrics = (await http.get("/metrics")).text
        for counted in metrics.splitlines():
            if counted.startswith("toolcrib_calls_total{") and "calculator" in counted:
                output.line(f"/metrics: {counted}")

    def _headers(self, account: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.mint(account)}"}

    def _next_steps(self) -> None:
        output.heading("What to try next")
        flags = f' --data "{self.data}"' if self.data else ""
        activate = Path(sys.prefix) / "bin" / "activate"
        if activate.exists():
            output.line(f"  . {activate}    # in a second shell")
        for line in (*self._commands(flags), _EDIT, "Ctrl-C stops everything"):
            output.line(f"  {line}")

    def _commands(self, flags: str) -> list[str]:
        """Commands that work with the accounts that are there."""
        if not self.accounts:
            return [f"toolcrib up --manifests FOLDER{flags}    # there are no agents yet"]
        first = self.accounts[0]
        found = [f"toolcrib tools --as {first}{flags}"]
        if "heist/safecracker" in self.accounts:
            found.append(f"toolcrib call calculator expression='6 * 7' --as safecracker{flags}")
        if "catalog/librarian" in self.accounts:
            found.append(f'toolcrib search "create an issue on a repository" --as librarian{flags}')
        found.append(f'curl -s -H "Authorization: Bearer $(toolcrib token {first}{flags})" {self.url}/')
        return found


def _names(tools: list[dict[str, Any]]) -> str:
    names = [t["name"] for t in tools]
    more = f" … (+{len(names) - _SHOWN_TOOLS})" if len(names) > _SHOWN_TOOLS else ""
    return ", ".join(names[:_SHOWN_TOOLS]) + more
