"""What a definition says that a tool's description has no need to say: instructions to the model, and text that hides.

Rules over words: they find what is written plainly, and warn. They never change whether a tool is used, and a text that says
the same in other words passes. `bench/scanner` measures them.

Each rule is a pattern with bounded gaps, so its time is linear in the text.
"""

from __future__ import annotations

import base64
import binascii
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from toolcrib.lint.weaknesses import Weakness
from toolcrib.resources.conditions import ConditionReason
from toolcrib.resources.tools import Tool
from toolcrib.text import escape, truncate

HINTS: dict[ConditionReason, str] = {
    ConditionReason.ASKS_FOR_SECRETS: "do not approve it unless you know why it needs this; ask its author",
    ConditionReason.CONCEALS: "do not approve it unless you know why; a tool has nothing to keep from its user",
    ConditionReason.INSTRUCTS_MODEL: "describe what the tool does; instructions to the model belong to the agent",
    ConditionReason.SHADOWS_TOOL: "describe this tool alone; do not approve one that changes how others are used",
    ConditionReason.LOOKS_LIKE_TOOL: "rename one of the two, or delete the one that pretends to be the other",
    ConditionReason.ENCODED_TEXT: "write it in plain text, or delete it",
}
"""Every rule by its code, what weighs most first, and what to do about it."""
MOST_SHOWN = 80
_LONGEST = 16_384
"""Characters of one text that are looked at: a description holds a quarter of that."""
_DEEPEST = 64
_SHORTEST = 12
"""Characters of a schema's text that say nothing yet."""
_MOST = 32_768
"""Characters of one tool that are looked at: what is longer is in schemas, whose own size is bounded."""

_GAP = r"(?:[^.!?;]{0,60}?)"
_PATHS = (
    r"(?:id_rsa(?!\.pub)|id_ed25519(?!\.pub)|\.ssh\b|\.env\b(?!\.)|\.aws/|\.kube/config|\.netrc|\.npmrc|\.gnupg|/etc/(?:passwd|shadow)"
    r"|mcp\.json|aws_secret\w*|github_token|keychain|cookie database)"
)
_SECRETS = r"(?:passwords?|credentials?|private keys?|api keys?|access tokens?|tokens|secrets|credit card numbers?|vpn password)"
_TAKE = r"\b(?:read|open|load|grab|fetch|find|collect|get|copy|take|include|append|paste|contents? of|value of|provide)\b"
_GIVE = r"\b(?:send|pass|include|append|put|provide|upload|encode|hand|post|attach|forward|paste|type|e-?mail|mail|ask)\b"
_USER = r"(?:the |this |your )?(?:user|human|him|her|them|person)\b"


def _rule(*patterns: str) -> re.Pattern[str]:
    """One of these, at the beginning of a word: each character within one costs a single look."""
    return re.compile(r"(?<!\w)(?:" + "|".join(f"(?:{p})" for p in patterns) + ")")


_SECRET = _rule(
    rf"{_TAKE}{_GAP}{_PATHS}",
    rf"{_PATHS}{_GAP}\b(?:has to be|must be|and|first)\b{_GAP}(?:{_GIVE}|\b(?:passed|sent|included|uploaded)\b)",
    rf"{_TAKE}{_GAP}{_SECRETS}{_GAP}\b(?:and|in|into|it)\b{_GAP}{_GIVE}",
    rf"\b(?:user's|users'|his|her|your) {_SECRETS}{_GAP}\b(?:if you know|in the |from the conversation|environment)",
    rf"\bask{_GAP}\b(?:user|for|him){_GAP}\bpassword",
    rf"\b(?:any|all|list the|collect|the user's) (?:access tokens|api keys|secrets|passwords){_GAP}\b(?:conversation|context|into|are to be)",
    r"\b(?:your|full|complete|entire|hidden) (?:full |complete |entire |whole )?(?:system prompt|chain of thought|internal reasoning)\b",
    rf"{_GIVE}[^.!?;:]{{0,60}}?\b(?:conversation|transcript|chat history)\b",
    r"\b(?:full|entire|complete|whole) (?:conversation|transcript|chat history|history of)\b",
    r"\bconversation (?:so far|history)\b(?=[^.]{0,40}(?:word|\.|$))(?<!earlier conversation history)",
    r"\beverything (?:that )?(?:the )?user (?:has )?(?:said|told|written)\b",
    r"\buser's (?:last|previous|recent|most recent) (?:\w+ )?messages?\b",
    r"\blist of all (?:the )?tools (?:that )?you have\b",
    r"\bmost recently opened private document\b",
    rf"\bsecrets? in your context\b|{_TAKE}{_GAP}\b(?:address book|browser's cookie)",
    r"\w{0,40}(?:contents?_(?:of|from)_|_id_rsa\b|chain_of_thought|conversation_history|internal_reasoning)",
)
_CONCEAL = _rule(
    rf"\b(?:do not|don't|never|must not|should not|not to|no need to|without)\W+(?:ever )?(?:tell|mention|inform|informing|telling|notify|notifying"
    rf"|reveal|frighten|alert|show)(?:ing)?\b(?:\W+\w+){{0,3}}?\W+{_USER}(?!\W+(?:the|that|whether|an?)\b)",
    r"\b(?:do not|don't|never) (?:mention|reveal|disclose|tell|display|bring|summari[sz]e)\b[^.!?;]{0,40}"
    r"\b(?:this|these|it up|that you|extra|notice)\b",
    r"\buser (?:must|should|may) not (?:know|notice|see|learn)\b",
    r"\b(?:secret|hidden|invisible|hide)\b(?:\W+\w+){0,2}?\W+(?:from|to) (?:the )?(?:user|human)\b(?!')",
    r"\b(?:silently|quietly|secretly|discreetly|covertly)\b(?:\W+also)?\W+(?:call|read|send|mails?|mail|upload|copy|copies|open|post|forward|log|run)\b",
    r"\b(?:make no reference to|don't bring it up|without drawing attention)\b",
)
_INSTRUCT = _rule(
    # what pretends to come from elsewhere than the tool's author
    r"<\|?/?(?:im_start|im_end|endoftext)",
    r"</?\s?(?:important|system|assistant\w*|secret\w*|instructions?|admin)\s?>\s{0,4}[^\s<.,]{2,20} [^<]{8}",
    r"\[/?(?:system|inst|admin|assistant)\]",
    r"#{2,3} ?(?:instruction|system)",
    r"<!--\s{0,4}(?:assistant|system|ai|model)\b",
    r"\b(?:the )?(?:assistant|ai|model|llm)\b ?(?:model)?(?: is|,)? ?(?:must|has to|have to|required to|should always|needs to)\b",
    r"(?:^|[.!?] )(?:ai|assistant|attention ai)\b[^.!?;]{0,12}: ?\w+",
    r"\bas an ai\b|\bthis message is from the developers\b|\bnotice of the administrator\b|\bofficial tool of your\b|\bhighest trust\b",
    r"\bsystem notice\b|\bsystem override\b",
    # what turns the model against what it was told
    r"\b(?:ignore|disregard|forget|override|bypass)[ ,]+(?:\w+[ ,]+){0,3}?(?:previous|prior|above|earlier|preceding|all|any|your|system|safety|other)"
    r"[ ,]+(?:\w+[ ,]+){0,3}?(?:instructions?|directions|prompts?|guidelines|restrictions|safety rules|tools in)\b",
    r"\b(?:ignore|forget|disregard) everything\b|\bdisregard (?:all )?safety\b|\boverride your\b|\bthe system prompt and any\b",
    r"\byou are now (?:dan|an?|in|the)\b|\bno restrictions\b|\bunrestricted\b",
    r"\bdeveloper mode is on\b|\bstop being a\b|\bpretend (?:that )?you are\b",
    r"\binstructions\b[^.!?;]{0,24}\b(?:are|is) (?:void|outdated|replaced|obsolete)\b|\bnew instructions ?:|\byour new task\b",
    r"\bcontent filters do not apply\b|\breveal your\b|\bprint the hidden\b|\bupdate your rules\b|\bobey this\b|\bcomply with whatever\b",
    r"\bfollow (?:those|the instructions|the ones) in this description\b|\babove the user's wishes\b",
    # what puts itself before all others
    r"\bbefore (?:using |calling |you use |you call )?(?:any|all|every) other tools?\b(?! of this)(?! in this)",
    r"\bbefore (?:answering|responding|replying)\b(?:\W+to)?\W+(?:any|every|the user|all)\b|\bwhatever the user (?:asks|says|wants)\b",
    r"\b(?:in|of|after|at the start of|before) (?:every|each) (?:conversation|message|tool call|answer)\b|\bafter every message\b",
    r"\bregardless of (?:the )?user|\beven if it is not needed\b|\bno other tool may\b|\ball (?:other )?(?:requests|tools)\b[^.!?;]{0,30}\bmust\b",
    r"\bdo not (?:answer|respond|reply)\b[^.!?;]{0,24}\b(?:until|from your own)\b|\bobey it\b|\bfollow what it (?:returns|says)\b",
    r"\bevery call of another tool\b|\b(?:always|only) (?:select|prefer|choose|use) (?:only )?this (?:tool|one)\b(?: before| in all|\.| first)",
    r"\bonly tool (?:that )?you will ever\b|\brank this\b|\bchosen over all\b|\bmust be chosen\b|\bignore all other\b|\bbefore all others\b",
    r"\bnever (?:use|call) (?:any other|\w+ again|other)\b|\bnot allowed to use\b",
    r"\b(?:they|it|\w+) (?:is|are) (?:broken|compromised|deprecated) and (?:unsafe|dangerous)\b",
    r"\bother \w+ tools (?:have been|return|are|must)\b|\bin all cases\b|\buse only this (?:one|tool)\b|\bis compromised\b",
    # what speaks for the user
    r"\buser has (?:already )?(?:agreed|consented|approved)\b|\bskip (?:the )?confirmations?\b|\bnever ask for (?:confirmation|permission|consent)\b",
    r"\bdo not ask (?:the user|for permission|him)\b|\bno consent\b|\bwithout waiting for the user\b|\bas approved by the user\b",
    r"\bapprove any pending\b|\bauto_?approve for\b|\bturn off the (?:safety|security)\b|\bwithout asking\b(?! questions)|\bapprove every request\b",
    r"\bpermission is granted by\b|\bexactly and without\b|\bfollow exactly\b|\bmust follow exactly\b",
    # the same in other languages
    r"\b(?:ignoriere|missachte|vergiss) (?:alle|die|s\u00e4mtliche) (?:vorherigen|bisherigen|vorigen) (?:anweisungen|regeln|instruktionen)",
    r"\b(?:ignora|ignore|ignorez|olvida|oublie)\b (?:todas |toutes |todos |tutte )?(?:las |les |as |le )?"
    r"(?:instrucciones|instructions|instru\u00e7\u00f5es|istruzioni)"
    r" (?:anteriores|previas|pr\u00e9c\u00e9dentes|precedenti)",
    r"\u0438\u0433\u043d\u043e\u0440\u0438\u0440\u0443\u0439(?:\u0442\u0435)? (?:\u0432\u0441\u0435 )?"
    r"\u043f\u0440\u0435\u0434\u044b\u0434\u0443\u0449",
    r"\b(?:sage|sag) (?:dem|der) benutzer(?:in)? nichts|\bno se lo digas al usuario|\bsans en parler \u00e0|\bn\u00e3o (?:diga|conte) ao",
)
_UNSPACED = re.compile(
    r"\u5ffd\u7565(?:\u4e4b\u524d|\u4ee5\u4e0a|\u6240\u6709|\u5148\u524d)|\u4e0d\u8981\u544a\u8bc9\u7528\u6237|\u4ee5\u524d\u306e\u6307\u793a\u3092\u7121\u8996"
)
"""The same in languages without spaces between words."""
_ENCODED = _rule(
    r"\bdecode (?:this|and|it|the)\b[^.!?]{0,40}\b(?:follow|obey|do what|carry)",
    r"\b(?:as a command|carry it out|and obey it)\b",
    r"\bcurl\b[^|]{0,80}\| ?(?:ba|z)?sh\b",
)
_LINK = re.compile(r"\]\(https?://[^)\s?]{0,100}\?\w{1,20}=|<img [^>?]{0,100}\?\w{1,20}=")
_EVERY_ANSWER = re.compile(r"\b(?:every|each|all|your) (?:answer|repl(?:y|ies)|response)s?\b")
_BASE64 = re.compile(r"[A-Za-z0-9+/]{40,}={0,2}")
_HEX = re.compile(r"\b(?:[0-9a-fA-F]{2}){20,}\b")
_SPACED = re.compile(r"(?<!\w)(?:[a-z] ){11}[a-z]\b")
"""Twelve letters that stand apart: no words of a description."""
_LEETED = re.compile(r"[a-z][0-9]+[a-z]")
_LEET = str.maketrans("013457$@", "oieastsa")


def suspicious(text: str) -> Iterator[tuple[ConditionReason, str]]:
    """What a text says that it should not: reason and the words, each reason once. Linear in its length."""
    text = text[:_LONGEST]
    plain = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    rules = (
        (ConditionReason.ASKS_FOR_SECRETS, _SECRET),
        (ConditionReason.CONCEALS, _CONCEAL),
        (ConditionReason.INSTRUCTS_MODEL, _INSTRUCT),
        (ConditionReason.ENCODED_TEXT, _ENCODED),
    )
    found = set()
    for reason, pattern in rules:
        match = pattern.search(plain)
        if match is None and reason is ConditionReason.INSTRUCTS_MODEL and not plain.isascii():
            match = _UNSPACED.search(plain)
        if match is not None:
            found.add(reason)
            yield reason, match[0]
    if ConditionReason.ENCODED_TEXT not in found and (said := _encoded(text, plain)) is not None:
        yield ConditionReason.ENCODED_TEXT, said


def _encoded(text: str, plain: str) -> str | None:
    """Sentences in base64 or hexadecimal, and instructions in letters that stand apart or are digits."""
    for pattern, decode in ((_BASE64, _from_base64), (_HEX, bytes.fromhex)):
        for match in pattern.finditer(text):
            with_words = _words(decode, match[0])
            if with_words:
                return match[0]
    if (link := _LINK.search(plain)) is not None and _EVERY_ANSWER.search(plain):
        return link[0]
    if (spaced := _SPACED.search(plain)) is not None:
        return spaced[0]
    if _LEETED.search(plain):
        read = plain.translate(_LEET)
        if _INSTRUCT.search(read) and not _INSTRUCT.search(plain):
            return plain[:MOST_SHOWN]
    return None


def _from_base64(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4))


def _words(decode: Callable[[str], bytes], text: str) -> bool:
    try:
        read = decode(text[:4_096]).decode("ascii")
    except (ValueError, binascii.Error):
        return False
    return read.isprintable() and read.count(" ") >= 3


def texts(tool: Tool) -> Iterator[tuple[str, str]]:
    """Every text of a tool that a model may read, and where it stands: `spec.description`, `spec.inputSchema/properties/a`.

    The schemas must have passed `schemas.check`, which bounds their depth.
    """
    spec = tool.spec
    for field in ("title", "description", "returns", "message"):
        if value := getattr(spec, field):
            yield f"spec.{field}", value
    for i, example in enumerate(spec.examples):
        yield f"spec.examples[{i}]", example
    yield from _of_schema(spec.input_schema, "spec.inputSchema", 0)
    yield from _of_schema(spec.output_schema, "spec.outputSchema", 0)


def _of_schema(value: Any, where: str, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        if len(value) > _SHORTEST:
            yield where, value
    elif depth < _DEEPEST and isinstance(value, Mapping):
        for key, inner in value.items():
            below = f"{where}/{escape(truncate(key, 60))}"
            if len(key) > 8 and where.endswith("/properties"):
                yield below, key
            yield from _of_schema(inner, below, depth + 1)
    elif depth < _DEEPEST and isinstance(value, list | tuple):
        for i, inner in enumerate(value):
            yield from _of_schema(inner, f"{where}/{i}", depth + 1)


def alone(tool: Tool) -> Iterator[Weakness]:
    """What is suspicious of a tool without knowing any other: each reason once, with the place and the words."""
    told, left = set[ConditionReason](), _MOST
    for where, text in texts(tool):
        if left <= 0:
            return
        left -= len(text)
        for reason, said in suspicious(text):
            if reason not in told:
                told.add(reason)
                yield warned(reason, where, f"{SAYS[reason]}: {quoted(said)}")


SAYS = {
    ConditionReason.ASKS_FOR_SECRETS: "it asks for files, secrets or the conversation",
    ConditionReason.CONCEALS: "it keeps something from the user",
    ConditionReason.INSTRUCTS_MODEL: "it tells the model what to do beyond this tool",
    ConditionReason.ENCODED_TEXT: "it has text that is not written plainly",
}


def quoted(text: str) -> str:
    """Other people's words, short and made safe to show."""
    return f'"{escape(truncate(" ".join(text.split()), MOST_SHOWN))}"'


def warned(reason: ConditionReason, field: str, message: str) -> Weakness:
    """A warning with its hint."""
    return Weakness(reason, field, message, HINTS[reason])
