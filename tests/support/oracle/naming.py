"""What a name means to a caller, said a second time: written from issue 13, B.1, over `decisions` alone.

Where the issue is silent, the choice is the product's, said here so that a change of it is seen: a binding names
namespaces only where it grants the caller some scope over tools now, and of several tools in the caller's own namespace
none holds the name, whatever is elsewhere.
"""

from hashlib import sha256

from oracle import decisions
from oracle.decisions import Caller, Issuers, World


class Names:
    """The names that one caller knows at one moment of one world.

    Attributes:
        visible: ids of the tools that may be listed.
        holder: bare name → id of the tool that holds it, or None where none does; disabled tools hold names too.
        sharing: bare name → ids of the visible tools of that name.
        of_server: `server:tool` → ids of the tools, visible or disabled, that it may mean.
        listed: id → the name under which discovery lists it.
    """

    def __init__(self, world: World, caller: Caller, issuers: Issuers, now: float) -> None:
        self.visible = decisions.visible(world, caller, issuers, now)
        home = decisions.own_namespace(world, caller, issuers, now)
        named = decisions.named_namespaces(world, caller, issuers, now)
        reached = [
            t
            for t in world["tools"]
            if decisions.decide(world, caller, issuers, t, "list", now, any_state=True)[0]
        ]
        self.holder: dict[str, str | None] = {}
        self.sharing: dict[str, list[str]] = {}
        self.of_server: dict[str, list[str]] = {}
        for name in {t["name"] for t in reached}:
            several = {t["id"]: t["namespace"] for t in reached if t["name"] == name}
            own = [i for i, namespace in several.items() if namespace == home]
            bound = [i for i, namespace in several.items() if namespace in named]
            closest = own or bound or list(several)
            self.holder[name] = closest[0] if len(closest) == 1 else None
            self.sharing[name] = sorted(i for i in several if i in self.visible)
        # issue 18, E: server:tool is a name, too, of the only tool of that server; servers of several namespaces share it
        for pair in {(t["server"], t["name"]) for t in reached if t["server"] is not None}:
            ids = [t["id"] for t in reached if (t["server"], t["name"]) == pair]
            self.of_server[":".join(pair)] = ids
        held = {i: name for name, i in self.holder.items()}
        self.listed = {i: held.get(i, i) for i in self.visible}

    def meaning(self, name: str) -> list[str]:
        """Visible ids: one is the tool, several (or one, where `conflicts`) are a conflict, none is absent."""
        if "/" in name:
            return [name] if name in self.visible else []
        if ":" in name:
            return sorted(i for i in self.of_server.get(name, ()) if i in self.visible)
        if self.conflicts(name):
            return self.sharing[name]
        held = self.holder.get(name)
        return [held] if held in self.visible else []

    def for_models(self, tool_id: str) -> str:
        """What a model calls the tool; enough for the short ids of `worlds`."""
        name, joined = self.listed[tool_id], tool_id.replace("/", "__")
        if "/" in name:
            return joined
        if all(c.isalnum() or c in "_-" for c in name) and "__" not in name:
            return name
        return joined + "_" + sha256(tool_id.encode()).hexdigest()[:6]

    def of_models(self, name: str) -> list[str]:
        """Visible ids, as `meaning`: a name of the list for models first, else as everywhere."""
        return [i for i in self.visible if self.for_models(i) == name] or self.meaning(name)

    def conflicts(self, name: str) -> bool:
        """Whether several tools could mean the name, so that it means none, however few of them are active."""
        if ":" in name:
            return len(self.of_server.get(name, ())) > 1
        return self.holder.get(name, "") is None
