"""What a change of manifests would change, and for whom: two access reviews compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from toolcrib.access.answers import Changes, ReviewedTool, SubjectChanges, ToolChange
from toolcrib.access.review import AccessReview, order_of, shown
from toolcrib.access.subjects import Who, assumes_scopes
from toolcrib.authorizer import Question, caller_refused, reach
from toolcrib.snapshot import Snapshot
from toolcrib.wire.publish import PublishedTool

_LINES = 20_000


def changes(
    before: AccessReview,
    after: AccessReview,
    subjects: Iterable[Who] | None = None,
    *,
    start: str = "",
    limit: int | None = None,
) -> Changes:
    """What differs for whom between two snapshots.

    Args:
        before: how it is.
        after: how it would be.
        subjects: those to look at; None: all that bindings name on either side.
        start: only subjects that come later (`next_cursor` of the page before).
        limit: at most so many subjects, and no further one after 20,000 lines.
    """
    everybody = (
        {w.key: w for w in (*before.subjects(), *after.subjects())}
        if subjects is None
        else {w.key: w for w in subjects}
    )
    touched = _touched(before.snapshot, after.snapshot)
    found: list[SubjectChanges] = []
    more = None
    for who in sorted(everybody.values(), key=order_of):
        if order_of(who) <= start or not _affected(before, after, who, touched):
            continue
        rows = tuple(_tool_changes(before, after, who))
        if not rows:
            continue
        if limit is not None and (len(found) == limit or sum(len(s.tools) for s in found) >= _LINES):
            more = found[-1].who
            break
        kinds = [r.change for r in rows]
        found.append(
            SubjectChanges(
                who=shown(who), tools=rows, gained=kinds.count("gained"), lost=kinds.count("lost"),
                changed=kinds.count("changed"),
            )
        )  # fmt: skip
    head = after.head(None, None)
    if any(assumes_scopes(after.identity(who), after.tokens) for who in everybody.values()):
        head["assumptions"] = ("tokens carry every scope that their bindings ask for",)
    return Changes(
        **head, action=after.action, subjects=tuple(found),
        next_cursor=None if more is None else f"{more.subject} {more.issuer or ''}",
    )  # fmt: skip


def _tool_changes(before: AccessReview, after: AccessReview, who: Who) -> Iterator[ToolChange]:
    had, has = _seen(before, who), _seen(after, who)
    then, now = before.identity(who), after.identity(who)
    for tool_id in sorted({*had, *has}):
        old, new = had.get(tool_id), has.get(tool_id)
        if old is not None and new is not None:
            if _essence(old) != _essence(new):
                yield ToolChange(tool_id=tool_id, change="changed", before=old, after=new)
        elif new is not None:
            yield ToolChange(tool_id=tool_id, change="gained", before=before.tool(then, tool_id), after=new)
        elif old is not None:
            yield ToolChange(tool_id=tool_id, change="lost", before=old, after=after.tool(now, tool_id))


def _seen(review: AccessReview, who: Who) -> dict[str, ReviewedTool]:
    return {t.tool_id: t for t in review.what_can(who).tools}


def _essence(tool: ReviewedTool) -> tuple[object, ...]:
    """What a person would call a change: not that an object was edited elsewhere."""
    by = None if tool.binding is None else tool.binding.uid
    others = tuple(o.uid for o in tool.others)
    return (tool.name, tool.reason, by, tool.scopes, others, tool.token_scopes, tool.until, tool.limits)


def _touched(before: Snapshot, after: Snapshot) -> list[tuple[PublishedTool | None, PublishedTool | None]]:
    """The tools that are another, new or gone."""
    ids = {key[2:] for key, _ in before.prints.items() ^ after.prints.items() if key.startswith("t:")}
    return [(before.tools.get(i), after.tools.get(i)) for i in sorted(ids)]


def _affected(
    before: AccessReview,
    after: AccessReview,
    who: Who,
    touched: list[tuple[PublishedTool | None, PublishedTool | None]],
) -> bool:
    """Whether anything can have changed for `who`: cheap for the many of whom nothing is touched."""
    then, now = before.identity(who), after.identity(who)
    if then is None and now is None:
        return False
    if then is None or now is None or then.cache_key != now.cache_key:
        return True
    old, new = before.snapshot.policy, after.snapshot.policy
    if old.bindings_of(then) != new.bindings_of(now):
        return True
    if caller_refused(then, old, before.now) != caller_refused(now, new, after.now):
        return True
    # whatever the tool's state: one that is disabled still counts where names are shared
    return any(
        (a is not None and reach(Question(then, a, before.action, old, before.now)))
        or (b is not None and reach(Question(now, b, after.action, new, after.now)))
        for a, b in touched
    )
