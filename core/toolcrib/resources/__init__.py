"""The custom resources as models: one source for the CRDs, for `validate` and for what the services read."""

from toolcrib.resources.bindings import (
    AgentScopeBinding,
    BindingSpec,
    ClusterAgentScopeBinding,
    ClusterBindingSpec,
    LabelSelector,
    Subject,
    SubjectKind,
    ToolPatterns,
)
from toolcrib.resources.conditions import Condition
from toolcrib.resources.kinds import KINDS, parse
from toolcrib.resources.meta import API_VERSION, GROUP, VERSION, ObjectMeta
from toolcrib.resources.tools import (
    Auth,
    AuthType,
    Backend,
    HttpBackend,
    ScopeMatch,
    ServiceReference,
    Tool,
    ToolAnnotations,
    ToolSpec,
    ToolState,
)

__all__ = [
    "API_VERSION",
    "GROUP",
    "KINDS",
    "VERSION",
    "AgentScopeBinding",
    "Auth",
    "AuthType",
    "Backend",
    "BindingSpec",
    "ClusterAgentScopeBinding",
    "ClusterBindingSpec",
    "Condition",
    "HttpBackend",
    "LabelSelector",
    "ObjectMeta",
    "ScopeMatch",
    "ServiceReference",
    "Subject",
    "SubjectKind",
    "Tool",
    "ToolAnnotations",
    "ToolPatterns",
    "ToolSpec",
    "ToolState",
    "parse",
]
