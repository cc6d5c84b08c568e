"""Names that a reader takes for one another, and tools that speak of tools of other servers.

Folding is UTS 39's skeleton, cut down to what names and titles can hold: `LETTERS` and `PAIRS` are the entries of its
confusables.txt (Unicode License v3) whose prototype is a Latin letter, for Cyrillic, Greek and Armenian letters in common
use and for ASCII, and digits that stand for letters. No maintained library of it is small, and core depends on none.
"""

from __future__ import annotations

import bisect
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator

from toolcrib.lint.suspicions import quoted, texts, warned
from toolcrib.lint.weaknesses import Weakness
from toolcrib.resources.conditions import ConditionReason
from toolcrib.resources.tools import Tool, ToolState

LETTERS = str.maketrans(
    # Cyrillic
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u04bb\u0501\u051b\u051d\u0475"
    "\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0425\u0423\u0406\u0408\u0405"
    # Greek
    "\u03b1\u03bf\u03bd\u03c1\u03b9\u03c5\u03b3\u03c3\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7"
    # Armenian and Latin
    "\u0578\u0585\u057d\u0570\u0131\u0251\u0261",
    "aeopcyxljshdqwv" "abekmhopctxyljs" "aovpluyo" "abezhlkmnoptyx" "nouhlag",
)  # fmt: skip
"""Letters of other scripts that look like Latin ones."""
_SHAPES = str.maketrans("Il1|0", "llllo")
_DIGITS = str.maketrans("3457", "east")
PAIRS = (("rn", "m"), ("vv", "w"), ("cl", "d"))
_SEPARATORS = re.compile(r"[-_. ]+")
_MENTIONS = re.compile(
    r"(?<![\w.-])(?:[A-Za-z0-9]+(?:[-_.][A-Za-z0-9]+)+|[a-z]+(?:[A-Z][a-z0-9]+)+)(?![\w-])"
)
"""What may be the name of a tool: of several words. A name of one word is a word."""
_SHORTEST = 5
"""Characters of a folded name from which on likeness is no chance."""
_DIRECTS = re.compile(
    r"\b(?:must(?! be one)|always|never|whenever|has to|have to|should|shall|from now on|overrides?|changes how|known bug|fix it|before it|"
    r"also ask|add|carry|in addition|first|passed to|goes to|as well|set to|instead of the one|after every|then (?:call|use|send)|"
    r"when .{0,40} is (?:used|called)|if\b.{0,60}\b(?:call|run))\b"
)
_BEYOND = re.compile(r"[.!?;\n]")
_LONGEST = 4_096
_MOST_MENTIONS = 64


def skeleton(text: str) -> str:
    """What a reader takes a name or title for: letters alone, those that look alike as one. Linear in its length."""
    if not text.isascii():
        text = unicodedata.normalize("NFKD", text.translate(LETTERS))
        text = "".join(c for c in text if not unicodedata.combining(c))
    text = text.translate(_SHAPES).casefold()
    if not text.isascii():
        text = text.translate(LETTERS)
    text = text.replace("i", "l")
    text = re.sub(r"(?<=[a-z])[3457](?=[a-z]|\b|_)", lambda m: m[0].translate(_DIGITS), text)
    text = _SEPARATORS.sub("", text)
    for pair, letter in PAIRS:
        text = text.replace(pair, letter)
    return text


def spelling(text: str) -> str:
    """A name without what people write differently in good faith: case and separators."""
    return _SEPARATORS.sub("", text).casefold()


class NameLint:
    """The names of the tools at hand, kept up as they change. Thousands of one name cost no more than thousands of names."""

    def __init__(self) -> None:
        self._tools: dict[str, tuple[str, str, str, str]] = {}
        """Of each tool: namespace, server, name, skeleton."""
        self._alike: defaultdict[tuple[str, str], dict[str, list[str]]] = defaultdict(dict)
        """By namespace and skeleton: sorted ids by spelling."""
        self._named: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        """By namespace and name: how many tools each server has."""
        self._speaks: dict[str, tuple[tuple[str, str], ...]] = {}
        self._mentioned: defaultdict[tuple[str, str], set[str]] = defaultdict(set)

    def update(self, key: str, tool: Tool | None) -> set[str]:
        """Note what `key` (`namespace/name`) is now, None: gone. Returns which others are to be judged again."""
        active = tool is not None and tool.spec.state is ToolState.ACTIVE
        now = _facts(tool) if active and tool is not None else None
        says = _mentions(tool) if active and tool is not None else ()
        before, touched = self._tools.get(key), set[str]()
        if before != now:
            if before is not None:
                touched |= self._touched(before)
                self._remove(key, before)
                touched |= self._touched(before)
            if now is not None:
                touched |= self._touched(now)
                self._add(key, now)
                touched |= self._touched(now)
        if self._speaks.get(key, ()) != says:
            for each in self._speaks.pop(key, ()):
                _leave(self._mentioned, each, key)
            for each in says:
                self._mentioned[each].add(key)
            if says:
                self._speaks[key] = says
        return touched - {key}

    def _touched(self, facts: tuple[str, str, str, str]) -> set[str]:
        """Whose suspicions the coming or going of such a tool may change."""
        space, server, name, shape = facts
        written = spelling(name)
        found = {
            each
            for word, keys in self._alike.get((space, shape), {}).items()
            if word != written
            for each in keys
        }
        mentioned, holders = self._mentioned.get((space, name), ()), self._named.get((space, name))
        if not holders:
            found.update(mentioned)
        elif server not in holders:
            found.update(k for k in mentioned if k in self._tools and self._tools[k][1] == server)
        return found

    def _add(self, key: str, facts: tuple[str, str, str, str]) -> None:
        space, server, name, shape = self._tools[key] = facts
        bisect.insort(self._alike[space, shape].setdefault(spelling(name), []), key)
        self._named[space, name][server] += 1

    def _remove(self, key: str, facts: tuple[str, str, str, str]) -> None:
        space, server, name, shape = facts
        del self._tools[key]
        spellings, written = self._alike[space, shape], spelling(name)
        keys = spellings[written]
        del keys[bisect.bisect_left(keys, key)]
        if not keys:
            del spellings[written]
        if not spellings:
            del self._alike[space, shape]
        holders = self._named[space, name]
        holders[server] -= 1
        if not holders[server]:
            del holders[server]
        if not holders:
            del self._named[space, name]

    def suspicions(self, tool: Tool) -> Iterator[Weakness]:
        """What of an active tool is about others: a name like theirs, and words about how they are to be used."""
        namespace, server, name, shape = _facts(tool)
        if (other := self._like(tool, namespace, name, shape)) is not None:
            where, which = other
            message = f"{quoted(name if where == 'spec.name' else tool.spec.title or '')} looks like the tool {which}"
            yield warned(ConditionReason.LOOKS_LIKE_TOOL, where, message)
        for where, text in texts(tool):
            if (found := self._shadowed(namespace, server, name, text)) is not None:
                message = f"it tells how {found[0]} is to be used: {quoted(found[1])}"
                yield warned(ConditionReason.SHADOWS_TOOL, where, message)
                return

    def _like(self, tool: Tool, namespace: str, name: str, shape: str) -> tuple[str, str] | None:
        if len(shape) >= _SHORTEST:
            written = spelling(name)
            others = [
                keys[0] for word, keys in self._alike.get((namespace, shape), {}).items() if word != written
            ]
            if others:
                return "spec.name", min(others)
        title = tool.spec.title
        # what is written in Latin letters alone may have the words of another tool's name
        if title and not title.isascii() and len(shape := skeleton(title[:256])) >= _SHORTEST:
            others = [
                key
                for keys in self._alike.get((namespace, shape), {}).values()
                for key in keys[:2]
                if key != tool.tool_id
            ]
            if others:
                return "spec.title", min(others)
        return None

    def _shadowed(self, namespace: str, server: str, name: str, text: str) -> tuple[str, str] | None:
        """A tool of another server that a sentence gives orders about."""
        for match in _MENTIONS.finditer(text[:_LONGEST]):
            said = match[0]
            holders = self._named.get((namespace, said))
            if not holders or said == name:
                continue
            if server in holders:
                continue
            start = max(
                (m.end() for m in _BEYOND.finditer(text, max(0, match.start() - 200), match.start())),
                default=max(0, match.start() - 200),
            )
            end = _BEYOND.search(text, match.end(), match.end() + 200)
            sentence = text[start : match.end() + 200 if end is None else end.start()]
            if _DIRECTS.search(sentence.casefold()):
                return said, sentence
        return None


def _facts(tool: Tool) -> tuple[str, str, str, str]:
    return tool.metadata.namespace or "default", tool.spec.server or "", tool.name, skeleton(tool.name)


def _mentions(tool: Tool) -> tuple[tuple[str, str], ...]:
    namespace, found = tool.metadata.namespace or "default", dict[str, None]()
    for _, text in texts(tool):
        for match in _MENTIONS.finditer(text[:_LONGEST]):
            found[match[0]] = None
            if len(found) >= _MOST_MENTIONS:
                break
    return tuple((namespace, name) for name in found)


def _leave(index: defaultdict[tuple[str, str], set[str]], key: tuple[str, str], member: str) -> None:
    index[key].discard(member)
    if not index[key]:
        del index[key]
