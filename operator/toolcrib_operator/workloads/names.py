"""How the workload of an Agent is named and labelled. Pure."""

from __future__ import annotations

import hashlib

from toolcrib import names

AGENT_LABEL = "toolcrib.dev/agent"
"""The Agent's name; a long one is cut, and ends in a hash."""
COMPONENT, MANAGER = "agent", "toolcrib-operator"
SELECTOR = f"app.kubernetes.io/component={COMPONENT},app.kubernetes.io/managed-by={MANAGER}"
"""What the operator lists: all that it runs."""

_LABEL_MOST = _DEPLOYMENT_MOST = 63
_JOB_MOST = 52
"""Their pods' names are longer, and are labels."""


def deployment(agent: str) -> str:
    """The Deployment of an Agent."""
    return _within(f"agent-{agent}", _DEPLOYMENT_MOST)


def job(agent: str, digest: str) -> str:
    """The Job of one run of an Agent."""
    return f"{_within(f'agent-{agent}', _JOB_MOST - 9)}-{digest[:8]}"


def labels(agent: str) -> dict[str, str]:
    """Of the workload and of its pods."""
    return selected_by(agent) | {"app.kubernetes.io/managed-by": MANAGER}


def selected_by(agent: str) -> dict[str, str]:
    """The labels by which a Deployment has its pods; they never change."""
    return {
        "app.kubernetes.io/name": "toolcrib",
        "app.kubernetes.io/component": COMPONENT,
        AGENT_LABEL: _label(agent),
    }


def _within(name: str, most: int) -> str:
    """A DNS label of at most `most` characters; another name never makes the same one by being changed."""
    kept = names.slug(name, most)
    return kept if kept == name else f"{names.slug(name, most - 7)}-{_mark(name)}"


def _label(name: str) -> str:
    return name if len(name) <= _LABEL_MOST else f"{name[: _LABEL_MOST - 7].rstrip('-.')}-{_mark(name)}"


def _mark(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:6]
