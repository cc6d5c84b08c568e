"""The authorizer: the one place that decides who may see and call what.

`decide` is pure. List, search, describe, load, call, watch and statistics all go through it. The order of its checks is
that of DESIGN §3 and stands in `chain`: identity, tool active, no deny, a binding grants, the token carries the scope;
the first *no* wins and names itself.
"""

from toolcrib.authorizer.bindings import Denial, denials, granting, matcher
from toolcrib.authorizer.chain import (
    CHECKS,
    DECIDER_VERSION,
    Action,
    Decision,
    Order,
    Question,
    Reason,
    caller_refused,
    decide,
    is_valid,
    reach,
    tool_refused,
)
from toolcrib.authorizer.grants import (
    Considered,
    Given,
    alternatives,
    considered,
    givers,
    granted_scopes,
    has_power,
    next_change,
)
from toolcrib.authorizer.policy import Policy, concerned, deniers, subject_key, subject_keys

__all__ = [
    "CHECKS",
    "DECIDER_VERSION",
    "Action",
    "Considered",
    "Decision",
    "Denial",
    "Given",
    "Order",
    "Policy",
    "Question",
    "Reason",
    "alternatives",
    "caller_refused",
    "concerned",
    "considered",
    "decide",
    "denials",
    "deniers",
    "givers",
    "granted_scopes",
    "granting",
    "has_power",
    "is_valid",
    "matcher",
    "next_change",
    "reach",
    "subject_key",
    "subject_keys",
    "tool_refused",
]
