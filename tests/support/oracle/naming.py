"""What a name means to a caller, said a second time: written from DESIGN §4, "Names", over `decisions` alone."""

from oracle import decisions
from oracle.decisions import Caller, Issuers, Tool, World


class Names:
    """The names that one caller knows at one moment of one world.

    Attributes:
        visible: ids of the tools that may be listed.
        bare: bare name → ids of the tools that it may mean, those that are disabled included.
        listed: id → the name under which discovery lists it, where the rules leave no choice.
    """

    def __init__(self, world: World, caller: Caller, issuers: Issuers, now: float) -> None:
        self.visible = decisions.visible(world, caller, issuers, now)
        home = _home(world, caller, issuers, now)
        known = [
            t
            for t in world["tools"]
            if decisions.decide(world, caller, issuers, t, "list", now, any_state=True)[0]
        ]
        self.bare: dict[str, list[str]] = {}
        for name in {t["name"] for t in known}:
            sharing = [t for t in known if t["name"] == name]
            own = [t for t in sharing if t["namespace"] == home]
            meant = own if len(own) == 1 else sharing
            self.bare[name] = sorted(t["id"] for t in meant)
        self.listed: dict[str, str] = {}
        shown = [t for t in known if t["id"] in self.visible]
        for tool in shown:
            if self.bare[tool["name"]] == [tool["id"]]:
                self.listed[tool["id"]] = tool["name"]
        long = [t for t in shown if t["id"] not in self.listed]
        for tool in long:
            name = tool["namespace"] + "." + tool["name"]
            alone = [
                t for t in known if (t["namespace"], t["name"]) == (tool["namespace"], tool["name"])
            ] == [tool]
            rivals = [t for t in long if t is not tool and name in _spellings(t)]
            if alone and name not in self.bare and not rivals:
                self.listed[tool["id"]] = name

    def meaning(self, name: str) -> list[str] | None:
        """Visible ids: one is the tool, several are a conflict, none is absent. None: the rules leave a choice."""
        if "/" in name:
            return [name] if name in self.visible else []
        if name in self.bare:
            return [i for i in self.bare[name] if i in self.visible]
        found = [i for i, listed in self.listed.items() if listed == name]
        if not found and len(self.listed) < len(self.visible):
            return None
        return found

    def conflicts(self, name: str) -> bool:
        """Whether the bare name is shared, so that it never means one tool, however few of them are active."""
        return len(self.bare.get(name, ())) > 1


def _home(world: World, caller: Caller, issuers: Issuers, now: float) -> str | None:
    return decisions.own_namespace(world, caller, issuers, now)


def _spellings(tool: Tool) -> set[str]:
    object_name = tool["id"].split("/")[1]
    found = {tool["namespace"] + "." + tool["name"], tool["namespace"] + "." + object_name}
    return found | ({f"{tool['namespace']}.{tool['server']}.{tool['name']}"} if tool["server"] else set())
