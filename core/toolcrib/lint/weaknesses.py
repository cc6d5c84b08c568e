"""What makes a tool hard to find, or hard to call: one list of rules, judged tool by tool and among its neighbours.

`toolcrib validate` prints what these rules say, and the operator writes it as the condition `Questionable` of a Tool.
They never change whether a tool is used. Neighbours are the other active tools of the same namespace: anyone who may read
one there may read them all, and what another namespace holds is nobody's business here.
"""

from __future__ import annotations

import json
import re
import unicodedata
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

from toolcrib.errors import SchemaUnsafe
from toolcrib.resources import mistakes
from toolcrib.resources.backends import PLACEHOLDER
from toolcrib.resources.conditions import ConditionReason
from toolcrib.resources.placing import ParameterPlace
from toolcrib.resources.tool_policies import FEW_WORDS
from toolcrib.resources.tools import Tool, ToolState
from toolcrib.schemas import safety as schema_safety
from toolcrib.schemas.cost import SchemaCost
from toolcrib.schemas.remembered import Remembered
from toolcrib.text import escape, truncate

FEWEST_WORDS = 3
"""Words with a meaning of their own that a description should have."""
EMBEDDED = 1_000
"""Characters that a vector is certain to be made of: the packaged model reads 256 tokens, 3.5 to 5 characters each."""
SHARED_BY = 3
"""Tools of a namespace with one and the same example, from which on it tells none of them from the others."""

HINTS: dict[ConditionReason, str] = {
    ConditionReason.NO_DESCRIPTION: "describe in one or two sentences what it does, to what, and when to use it",
    ConditionReason.SCHEMA_COSTLY: "use fewer alternatives and options, smaller patterns, and no nested unevaluated* keywords",
    ConditionReason.REQUIRED_UNDECLARED: "add it to properties, with type and description, or remove it from required",
    ConditionReason.PATH_ARGUMENT_UNDECLARED: "name a property of inputSchema in the path, or add this one to properties and required",
    ConditionReason.DESCRIPTION_REPEATS_NAME: "describe what the name does not: what it works on, what it returns, when to use it",
    ConditionReason.DESCRIPTION_TOO_SHORT: "describe what it does, to what, and when to use it",
    ConditionReason.DUPLICATE_DESCRIPTION: "describe in each what the other does not do",
    ConditionReason.DESCRIPTION_CUT: "begin with what the tool does; move manuals into returns, or leave them out",
    ConditionReason.NAME_SAYS_NOTHING: "name the action and its object, as in read_file, or set spec.server",
    ConditionReason.PARAMETERS_UNDESCRIBED: "give each property a description: its words are searched too",
    ConditionReason.BOILERPLATE_EXAMPLES: "give each tool sample requests that fit it alone, or none",
}
"""Every rule by its code, what weighs most first, and what to do about it; its meaning stands in `MEANINGS`."""

# what stands on a letter, such as vowels in Devanagari and Thai, is no letter to `re`
_MARKS = "".join(c for c in map(chr, range(0x300, 0x1100)) if unicodedata.category(c)[0] == "M")
_PIECES = re.compile(rf"(?:[^\W_]|[{_MARKS}])+")
_CAMEL = re.compile(
    r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[^\W\d_])(?=\d)|(?<=\d)(?=[^\W\d_])"
)
_UNSPACED = re.compile(r"([\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]+)")
_IDENTIFIER = re.compile(r"\S+[_\-./:]\S+|[a-z]\S*[a-z0-9][A-Z]\S*")
_LONGEST = 4_096
_DECLARE_TOO = frozenset({
    "$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "dependencies", "patternProperties",
})  # fmt: skip
"""Keywords beside `properties` that may say what a property is."""
# words that every description may have
_FILLER_WORDS = """
    a an the this that these those it its is are be was to of in on at by for from with and or as into any all some
    your you my our can will would should may if when which what who tool tools function functions method api endpoint
    subfunction use used uses using allow allows let lets help helps provide provides via given todo tbd na n description
    none null string"""
# words that a name may have without saying anything
_EMPTY_WORDS = """
    tool tools function functions func fn method do it run runner go main helper help util utils call caller execute
    exec invoke perform process handle handler handlers action actions command cmd op operation operations task job
    thing things stuff misc my your the a an new default general generic custom api endpoint service server mcp test
    tests testing foo bar baz qux temp tmp example sample untitled unnamed noname name tool_name request response
    data object item value input output x y z get post put use make work"""

_ARTICLES = frozenset(("a", "an", "the"))
_FILLERS, _EMPTY_NAMES = frozenset(_FILLER_WORDS.split()), frozenset(_EMPTY_WORDS.split())


@dataclass(frozen=True, slots=True)
class Weakness:
    """One reason why a tool may not be found: which rule, which field, what about it, what to do."""

    reason: ConditionReason
    field: str
    message: str
    hint: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class SearchLint:
    """The tools at hand, kept up as they change; says of each what makes it hard to find.

    One change touches at most a handful of others, however many share a description.
    """

    def __init__(self) -> None:
        self._keys: dict[str, tuple[bytes, ...]] = {}
        self._sharing: dict[bytes, list[str]] = {}
        """What is shared, as a digest, and who has it, sorted."""

    def update(self, key: str, tool: Tool | None) -> set[str]:
        """Note what `key` (`namespace/name`) is now, None: gone. Returns which others are to be judged again."""
        before = self._keys.pop(key, ())
        after = _shared(tool) if tool is not None and tool.spec.state is ToolState.ACTIVE else ()
        touched: set[str] = set()
        for digest in before:
            if digest not in after:
                touched |= self._leave(digest, key)
        for digest in after:
            if digest not in before:
                touched |= self._join(digest, key)
        if after:
            self._keys[key] = after
        return touched - {key}

    def weaknesses(self, tool: Tool) -> tuple[Weakness, ...]:
        """Everything about an active tool, what weighs most first; nothing about one that is on its way out.

        `update` must have been told of it, and of its neighbours.
        """
        if tool.spec.state is not ToolState.ACTIVE:
            return ()
        found = {w.reason: w for w in (*alone(tool), *self._among(tool))}
        return tuple(found[reason] for reason in HINTS if reason in found)

    def _among(self, tool: Tool) -> Iterator[Weakness]:
        key = tool.tool_id
        if description := _description_key(tool):
            holders = self._sharing.get(description, [])
            at = bisect_left(holders, key)
            if len(holders) > 1:
                # the one before, so that a change of one tool is news for its neighbours alone
                other = holders[at - 1 if at else 1]
                yield _weakness(
                    ConditionReason.DUPLICATE_DESCRIPTION,
                    "spec.description",
                    f"Tool {other} has the same description: only name and server tell them apart",
                )
        for i, example in enumerate(tool.spec.examples):
            digest = _example_key(tool, example)
            if digest is not None and len(self._sharing.get(digest, ())) >= SHARED_BY:
                yield _weakness(
                    ConditionReason.BOILERPLATE_EXAMPLES,
                    f"spec.examples[{i}]",
                    f"{_quoted(example)} is an example of {SHARED_BY} or more tools of the namespace",
                )
                return

    def _join(self, digest: bytes, key: str) -> set[str]:
        holders = self._sharing.setdefault(digest, [])
        insort(holders, key)
        return _around(holders, bisect_left(holders, key))

    def _leave(self, digest: bytes, key: str) -> set[str]:
        holders = self._sharing[digest]
        at = bisect_left(holders, key)
        touched = _around(holders, at)
        del holders[at]
        if not holders:
            del self._sharing[digest]
        return touched


def alone(tool: Tool) -> Iterator[Weakness]:
    """What can be said of a tool without knowing any other."""
    spec = tool.spec
    yield from _costly(tool)
    yield from _undeclared(tool)
    yield from _described(tool)
    if len(spec.description) > EMBEDDED:
        message = (
            f"it has {len(spec.description)} characters: text after about {EMBEDDED} is searched by "
            "words only, not by meaning"
        )
        yield _weakness(ConditionReason.DESCRIPTION_CUT, "spec.description", message)
    named = {*words(tool.name), *words(spec.server or "")}
    if all(len(w) < 2 or w.isdecimal() or w in _EMPTY_NAMES for w in named):
        message = f"{tool.name!r} says nothing about what the tool does"
        yield _weakness(ConditionReason.NAME_SAYS_NOTHING, "spec.name", message)
    properties = spec.input_schema.get("properties")
    if isinstance(properties, dict):
        bare = [name for name, schema in properties.items() if not _explained(schema)]
        if bare:
            shown = ", ".join(_shown(name, 40) for name in bare[:3])
            more = f" and {len(bare) - 3} more" if len(bare) > 3 else ""
            message = f"{len(bare)} of {len(properties)} without a description: {shown}{more}"
            yield _weakness(ConditionReason.PARAMETERS_UNDESCRIBED, "spec.inputSchema.properties", message)


def prepare(tool: Tool) -> None:
    """Work out what takes long of a tool with a large schema, in any thread: the next look at it is short then."""
    for _ in _costly(tool):
        pass


@lru_cache(maxsize=32)
def _is_costly(schema: Remembered) -> bool:
    cost = SchemaCost(json.loads(schema.text))
    costly = cost.is_costly
    cost.drop()
    return costly


def _costly(tool: Tool) -> Iterator[Weakness]:
    try:
        schema_safety.check(tool.spec.input_schema)
    except SchemaUnsafe:
        return  # said elsewhere, and not to be reckoned with
    schema = Remembered(json.dumps(tool.spec.input_schema).encode())
    costly = _is_costly(schema)
    schema.forget()
    if costly:
        message = (
            "checking an ordinary call against it may take longer than 50 ms, and such calls are refused"
        )
        yield _weakness(ConditionReason.SCHEMA_COSTLY, "spec.inputSchema", message)


def _undeclared(tool: Tool) -> Iterator[Weakness]:
    """Arguments that a call needs and that no model is told of; of schemas that say it in another way, nothing."""
    schema, http = tool.spec.input_schema, tool.spec.backend.http
    properties, required = schema.get("properties", {}), schema.get("required")
    if not isinstance(properties, dict) or not _DECLARE_TOO.isdisjoint(schema):
        return
    if isinstance(schema.get("additionalProperties"), dict):
        return
    needed = required if isinstance(required, list) else []
    if missing := [name for name in needed if isinstance(name, str) and name not in properties]:
        message = f"{_listed(missing, properties)}: required, but not in properties"
        yield _weakness(ConditionReason.REQUIRED_UNDECLARED, "spec.inputSchema.required", message)
    if http is None:
        return
    field, address = ("path", http.path or "") if http.url is None else ("url", http.url)
    called = {p.sent_as: p.argument for p in http.parameters or () if p.place is ParameterPlace.PATH}
    places = dict.fromkeys(re.findall(PLACEHOLDER, address.partition("?")[0]))
    if missing := [name for place in places if (name := called.get(place, place)) not in properties]:
        message = f"{_listed(missing, properties)}: in the path, but not in inputSchema.properties"
        yield _weakness(ConditionReason.PATH_ARGUMENT_UNDECLARED, f"spec.backend.http.{field}", message)


def _listed(missing: list[str], known: Iterable[str]) -> str:
    """The first three names, each with the known one that may be meant."""
    among = [name for name in known if len(name) <= 64][:200]  # likeness of long texts takes long
    named = []
    for name in missing[:3]:
        meant = mistakes.nearest(name[:64], among)
        named.append(_shown(name, 40) + (f" (did you mean {_shown(meant, 40)}?)" if meant else ""))
    return ", ".join(named) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")


def _described(tool: Tool) -> Iterator[Weakness]:
    description, field = tool.spec.description, "spec.description"
    if not description.strip():
        message = "missing: search finds the tool by its name and parameters alone"
        yield _weakness(ConditionReason.NO_DESCRIPTION, field, message)
        return
    description = description[:_LONGEST]
    said = [w for w in words(description) if w not in _FILLERS]
    told = {
        *words(tool.name),
        *words(tool.spec.server or ""),
        tool.name.lower(),
        (tool.spec.server or "").lower(),
    }
    if _all_told(description, {_stem(w) for w in told}):
        message = f"{_quoted(description)} only repeats the name"
        yield _weakness(ConditionReason.DESCRIPTION_REPEATS_NAME, field, message)
    elif len(said) < FEWEST_WORDS:
        message = f"{_quoted(description)} {FEW_WORDS}"
        yield _weakness(ConditionReason.DESCRIPTION_TOO_SHORT, field, message)


def _all_told(description: str, told: set[str]) -> bool:
    """Whether no word of a description is new, be it split or not: GitHub is github, git and hub."""
    return all(
        _stem(piece.casefold()) in told or all(_stem(w) in told or w in _FILLERS for w in words(piece))
        for piece in _PIECES.findall(description)
    )


def words(text: str) -> list[str]:
    """The words of prose and identifiers in lower case: `getHTTPStatus_v2` gives get, http, status, v, 2.

    Of text without spaces between words, each pair of characters is one, and so is what remains. Nothing is left out.
    """
    found: list[str] = []
    for piece in _PIECES.findall(unicodedata.normalize("NFKC", text)):
        # where there is text without spaces, every second part is such a run
        for i, part in enumerate(_UNSPACED.split(piece) if not piece.isascii() else (piece,)):
            if i % 2:
                found += [part[at : at + 2] for at in range(0, len(part), 2)]
            elif part.isascii() and len(part) <= 64:
                found += _ascii_words(part) if part else ()
            else:
                found.append(part.casefold())
    return found


@lru_cache(4_096)
def _ascii_words(piece: str) -> tuple[str, ...]:
    return tuple(word.lower() for word in _CAMEL.split(piece))


def _stem(word: str) -> str:
    """Roughly: reads, reading and read are one word."""
    for ending in ("ing", "es", "ed", "s", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


def _explained(schema: object) -> bool:
    text = schema.get("description") if isinstance(schema, dict) else None
    return isinstance(text, str) and bool(text.strip())


def _shared(tool: Tool) -> tuple[bytes, ...]:
    keys = (_description_key(tool), *(_example_key(tool, example) for example in tool.spec.examples))
    return tuple(dict.fromkeys(key for key in keys if key is not None))


def _description_key(tool: Tool) -> bytes | None:
    """The same for descriptions that differ in case, punctuation, articles, or in the tool's own name alone."""
    text = tool.spec.description
    # a word, be it OneDrive, may be what a description is about: `delete a user`, `files of OneDrive`
    if _IDENTIFIER.fullmatch(tool.name):
        text = text.replace(tool.name, " ")
    said = [w for w in words(text) if w not in _ARTICLES]
    return None if _FILLERS.issuperset(said) else _digest(tool, "description", said)


def _example_key(tool: Tool, example: str) -> bytes | None:
    said = words(example)
    return _digest(tool, "example", said) if said else None


def _digest(tool: Tool, what: str, said: list[str]) -> bytes:
    text = " ".join((tool.metadata.namespace or "default", what, *said))
    return blake2b(text.encode("utf-8", "replace"), digest_size=16).digest()


def _around(holders: list[str], at: int) -> set[str]:
    """Who says something else where this one comes or goes: its neighbours, and all while they are few."""
    if len(holders) <= SHARED_BY:
        return set(holders)
    return {holders[at - 1] if at else holders[1], holders[min(at + 1, len(holders) - 1)]}


def _shown(text: str, limit: int = 60) -> str:
    return escape(truncate(" ".join(text.split()), limit))


def _quoted(text: str) -> str:
    return f'"{_shown(text)}"'


def _weakness(reason: ConditionReason, field: str, message: str) -> Weakness:
    return Weakness(reason, field, message, HINTS[reason])
