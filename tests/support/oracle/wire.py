"""Plain dicts as what the operator publishes."""

from oracle.decisions import Binding, Tool
from toolcrib import publishing
from toolcrib.wire.publish import PublishedAccount, PublishedBinding, PublishedSubject, PublishedTool


def published_tool(tool: Tool) -> PublishedTool:
    """Its marker stands in description, parameter and sample request."""
    marker = tool["marker"]
    return publishing.with_digests(
        tool_id=tool["id"],
        uid=f"uid-{tool['id']}",
        generation=1,
        namespace=tool["namespace"],
        name=tool["name"],
        server=tool["server"],
        description=f"Does {marker} things.",
        scopes=tuple(tool["scopes"]),
        scope_match=tool["match"],
        tags=tuple(tool["tags"]),
        examples=(f"do {marker} now",),
        input_schema={"type": "object", "properties": {"path": {"type": "string", "description": marker}}},
        state=tool["state"],
        quarantined=tool["quarantined"],
    )


def published_binding(binding: Binding) -> PublishedBinding:
    """An Agent is already the service account that its pods run as."""
    return PublishedBinding(
        uid=binding["uid"],
        generation=1,
        kind="Agent"
        if binding["suspends"]
        else "AgentScopeBinding"
        if binding["namespace"]
        else "ClusterAgentScopeBinding",
        namespace=binding["namespace"],
        name=binding["name"],
        subjects=tuple(
            PublishedSubject(
                kind=s["kind"],
                namespace=s["namespace"],
                name=s["name"],
                issuer=s["issuer"],
                client_id=s["client"],
            )
            for s in binding["subjects"]
        ),
        namespaces=None if binding["reach"] is None else tuple(binding["reach"]),
        lists_namespaces=binding["namespace"] is None and binding["listed"],
        scopes=tuple(binding["scopes"]),
        allow=None if binding["allow"] is None else tuple(binding["allow"]),
        # as the operator does it, for replicas of earlier versions
        deny=("*",) if binding["suspends"] else tuple(binding["deny"]),
        suspends=binding["suspends"],
        deny_scopes=tuple(binding["deny_scopes"]),
        servers=None if binding["servers"] is None else tuple(binding["servers"]),
        not_before=binding["from"],
        expires_at=binding["until"],
    )


def published_account(key: str, uid: str) -> PublishedAccount:
    """`namespace/name` and its uid."""
    namespace, name = key.split("/")
    return PublishedAccount(namespace=namespace, name=name, uid=uid)
