"""The custom resources as models: one source for the CRDs, for `validate` and for what the services read."""

from toolcrib.resources.addresses import ServiceReference
from toolcrib.resources.agents import Agent
from toolcrib.resources.backends import Auth, AuthType, Backend, HttpBackend
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
from toolcrib.resources.canaries import ToolCanary
from toolcrib.resources.conditions import Condition
from toolcrib.resources.kinds import KINDS, parse
from toolcrib.resources.meta import API_VERSION, GROUP, VERSION, ObjectMeta
from toolcrib.resources.servers import McpServer, ToolServer
from toolcrib.resources.tools import Approval, ScopeMatch, Tool, ToolAnnotations, ToolSpec, ToolState

__all__ = [
    "API_VERSION",
    "GROUP",
    "KINDS",
    "VERSION",
    "Agent",
    "AgentScopeBinding",
    "Approval",
    "Auth",
    "AuthType",
    "Backend",
    "BindingSpec",
    "ClusterAgentScopeBinding",
    "ClusterBindingSpec",
    "Condition",
    "HttpBackend",
    "LabelSelector",
    "McpServer",
    "ObjectMeta",
    "ScopeMatch",
    "ServiceReference",
    "Subject",
    "SubjectKind",
    "Tool",
    "ToolAnnotations",
    "ToolCanary",
    "ToolPatterns",
    "ToolServer",
    "ToolSpec",
    "ToolState",
    "parse",
]
