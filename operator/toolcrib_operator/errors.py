"""Every error that the operator raises on purpose.

OperatorError
├── ReplicaUnavailable    a registry replica did not answer, or answered with something else than asked for
├── ReplicasUnknown       the list of replicas could not be read: not the same as "there are none"
├── IndexUnavailable      the replica answers, its search index does not
├── ClusterUnavailable    the API server did not answer, or refused for a reason that may pass
│   └── NotListable       a kind cannot be listed: its CRD is missing, or RBAC forbids it
├── Invalid               the API server refuses the object itself (HTTP 400, 422)
├── Conflict              the object has changed since it was read (HTTP 409), or there is one of that name
└── Gone                  the object does not exist any more (HTTP 404)
"""

from __future__ import annotations


class OperatorError(Exception):
    """The root: catch it to catch everything the operator raises on purpose."""


class ReplicaUnavailable(OperatorError):
    """A registry replica did not answer, or not as the admin channel says."""


class ReplicasUnknown(OperatorError):
    """The replicas could not be listed."""


class IndexUnavailable(OperatorError):
    """The search index behind a replica does not answer; `retry_after` is in seconds, if it said so."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        self.retry_after = retry_after
        super().__init__(message)


class ClusterUnavailable(OperatorError):
    """The API server did not do what was asked, for a reason that may pass."""


class NotListable(ClusterUnavailable):
    """A kind cannot be listed. It never means that there are no such objects."""


class Invalid(OperatorError):
    """The API server refuses the object itself: asking again does not help."""


class Conflict(OperatorError):
    """The object is not at the expected resourceVersion any more, or one to be created is there already."""


class Gone(OperatorError):
    """The object does not exist any more."""
