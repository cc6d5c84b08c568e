"""Client-side `kubectl apply` of a custom resource, written after kubectl's own steps (k8s.io/apimachinery, jsonmergepatch).

CreateThreeWayJSONMergePatch, evanphx/json-patch's CreateMergePatch and MergeMergePatches, and then the API server's
application of the patch. It shares no code with `toolcrib_cli.three_way_merge`, which is compared with it.
"""

from __future__ import annotations

import copy
import json
from typing import Any

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
Json = dict[str, Any]


def modified(manifest: Json) -> Json:
    """The manifest as kubectl sends it: with itself in the annotation."""
    bare = copy.deepcopy(manifest)
    annotations = bare["metadata"].setdefault("annotations", {})
    annotations.pop(LAST_APPLIED, None)
    annotations[LAST_APPLIED] = json.dumps(bare | {"metadata": {**bare["metadata"], "annotations": {}}})
    return bare


def three_way_patch(manifest: Json, live: Json) -> Json:
    """The merge patch that an apply sends."""
    last = live["metadata"].get("annotations", {}).get(LAST_APPLIED)
    original, wanted = json.loads(last) if last else {}, modified(manifest)
    additions = _keep_or_delete_null(_create_merge_patch(live, wanted), keep_null=False)
    deletions = _keep_or_delete_null(_create_merge_patch(original, wanted), keep_null=True)
    return _merge_docs(deletions, additions, merge_merge=True)


def apply(manifest: Json, live: Json) -> Json:
    """The object after the apply."""
    return patch(live, three_way_patch(manifest, live))


def patch(live: Json, change: Json) -> Json:
    """The object after `kubectl patch --type merge`."""
    return _merge_docs(copy.deepcopy(live), copy.deepcopy(change), merge_merge=False)


def _create_merge_patch(a: Json, b: Json) -> Json:
    into: Json = {}
    for key, bv in b.items():
        if key not in a or type(a[key]) is not type(bv):
            into[key] = bv
        elif isinstance(bv, dict):
            if deeper := _create_merge_patch(a[key], bv):
                into[key] = deeper
        elif a[key] != bv:
            into[key] = bv
    for key in a:
        if key not in b:
            into[key] = None
    return into


def _keep_or_delete_null(found: Json, *, keep_null: bool) -> Json:
    filtered: Json = {}
    for key, value in found.items():
        if value is None:
            if keep_null:
                filtered[key] = None
        elif isinstance(value, dict):
            if not value:
                if not keep_null:
                    filtered[key] = value
            elif deeper := _keep_or_delete_null(value, keep_null=keep_null):
                filtered[key] = deeper
        elif not keep_null:
            filtered[key] = value
    return filtered


def _merge_docs(doc: Json, change: Json, *, merge_merge: bool) -> Json:
    for key, value in change.items():
        if value is None:
            if merge_merge:
                doc[key] = None
            else:
                doc.pop(key, None)
        elif isinstance(value, dict) and (merge_merge is False or isinstance(doc.get(key), dict)):
            held = doc.get(key)
            doc[key] = _merge_docs(held if isinstance(held, dict) else {}, value, merge_merge=merge_merge)
        else:
            doc[key] = value
    return doc
