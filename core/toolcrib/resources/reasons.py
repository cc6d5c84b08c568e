"""Every reason that a condition of ours can have, with its meaning and what to do: the reference page prints them."""

from __future__ import annotations

from enum import StrEnum


class ConditionReason(StrEnum):
    """Every reason any condition of ours can have."""

    PENDING = "Pending"
    READY = "Ready"
    ACCEPTED = "Accepted"
    INDEXED = "Indexed"
    INVALID = "Invalid"
    SCHEMA_UNSAFE = "SchemaUnsafe"
    HIDDEN_TEXT = "HiddenText"
    NAME_CONFLICT = "NameConflict"
    QUOTA_EXCEEDED = "QuotaExceeded"
    NOT_ACCEPTED = "NotAccepted"
    NOT_PUBLISHED = "NotPublished"
    NOT_INDEXED = "NotIndexed"
    INDEX_UNAVAILABLE = "IndexUnavailable"
    DISABLED = "Disabled"
    SERVICE_UNSUPPORTED = "ServiceUnsupported"
    SERVICE_MISSING = "ServiceMissing"
    SERVER_MISSING = "ServerMissing"
    SERVER_NOT_ACCEPTED = "ServerNotAccepted"
    NOT_YET_IMPORTED = "NotYetImported"
    VERIFIED = "Verified"
    IMPORTED = "Imported"
    IMPORTING = "Importing"
    IMPORT_FAILED = "ImportFailed"
    TOOLS_LEFT_OUT = "ToolsLeftOut"
    SHRUNK = "Shrunk"
    STDIO_NOT_ALLOWED = "StdioNotAllowed"
    SERVER_ERROR = "ServerError"
    RATE_LIMITED = "RateLimited"
    AUTHENTICATION_FAILED = "AuthenticationFailed"
    LOGIN_REQUIRED = "LoginRequired"
    TRANSPORT_UNSUPPORTED = "TransportUnsupported"
    PROTOCOL_ERROR = "ProtocolError"
    TOO_LARGE = "TooLarge"
    APPROVED = "Approved"
    NEVER_APPROVED = "NeverApproved"
    DRIFTED = "Drifted"
    QUARANTINED = "Quarantined"
    TOOLS_CHANGED = "ToolsChanged"
    TOOLS_NEW = "ToolsNew"
    NOTHING_DRIFTED = "NothingDrifted"
    ENDPOINTS_READY = "EndpointsReady"
    NO_READY_ENDPOINTS = "NoReadyEndpoints"
    CONNECTED = "Connected"
    REFUSED = "Refused"
    TIMED_OUT = "TimedOut"
    NAME_NOT_FOUND = "NameNotFound"
    TLS_FAILED = "TlsFailed"
    UNREACHABLE = "Unreachable"
    EGRESS_REFUSED = "EgressRefused"
    NO_ADDRESS = "NoAddress"
    NOT_PROBED = "NotProbed"
    FALLBACK_USABLE = "FallbackUsable"
    FALLBACK_REFUSED = "FallbackRefused"
    CREDENTIAL_MISSING = "CredentialMissing"
    CREDENTIAL_NOT_ALLOWED = "CredentialNotAllowed"
    UNTRUSTED_LABEL = "UntrustedLabel"
    ADMISSION_POLICY_MISSING = "AdmissionPolicyMissing"
    ADMISSION_POLICY_UNREAD = "AdmissionPolicyUnread"
    PROPAGATED = "Propagated"
    NOT_PROPAGATED = "NotPropagated"
    NO_REPLICAS = "NoReplicas"
    SUSPENDED = "Suspended"
    NOT_SUSPENDED = "NotSuspended"
    DEPLOYED = "Deployed"
    NOT_DEPLOYED = "NotDeployed"
    NAMESPACE_NOT_RUN = "NamespaceNotRun"
    NO_IMAGE = "NoImage"
    ACCOUNT_MISSING = "AccountMissing"
    MODEL_KEY_MISSING = "ModelKeyMissing"
    MODEL_KEY_NOT_ALLOWED = "ModelKeyNotAllowed"
    NAME_TAKEN = "NameTaken"
    DEPLOY_FAILED = "DeployFailed"
    WAITS_FOR_TOOLS = "WaitsForTools"
    DISCOVERING = "Discovering"
    NOT_DISCOVERED = "NotDiscovered"
    NOTHING_RUNS = "NothingRuns"
    ACCESS_REQUESTED = "AccessRequested"
    ACCESS_APPROVED = "AccessApproved"
    ACCESS_REJECTED = "AccessRejected"
    TOOL_MISSING = "ToolMissing"
    CANARY_CONFLICT = "CanaryConflict"
    NOTHING_TO_TRY = "NothingToTry"
    ROLLED_BACK = "RolledBack"
    NOT_ROLLED_BACK = "NotRolledBack"
    TRIAL_OVER = "TrialOver"
    EXPIRED = "Expired"
    NOT_YET_VALID = "NotYetValid"
    IN_FORCE = "InForce"
    MATCHES = "Matches"
    MATCHES_NOTHING = "MatchesNothing"
    POWERS_ALONE = "PowersAlone"
    NOTHING_ODD = "NothingOdd"
    EXPIRED_AT_APPLY = "ExpiredAtApply"
    SUBJECT_NOT_FOUND = "SubjectNotFound"
    ALLOW_SHADOWED = "AllowShadowed"
    DENY_NEVER_FIRES = "DenyNeverFires"
    WILDCARD_ALLOW = "WildcardAllow"
    SCOPE_SHADOWED = "ScopeShadowed"
    DENY_HOLDS = "DenyHolds"
    DENY_STOPPED_MATCHING = "DenyStoppedMatching"
    ASKS_FOR_SECRETS = "AsksForSecrets"
    CONCEALS = "Conceals"
    INSTRUCTS_MODEL = "InstructsModel"
    SHADOWS_TOOL = "ShadowsTool"
    LOOKS_LIKE_TOOL = "LooksLikeTool"
    ENCODED_TEXT = "EncodedText"
    NO_DESCRIPTION = "NoDescription"
    DESCRIPTION_REPEATS_NAME = "DescriptionRepeatsName"
    DESCRIPTION_TOO_SHORT = "DescriptionTooShort"
    DUPLICATE_DESCRIPTION = "DuplicateDescription"
    DESCRIPTION_CUT = "DescriptionCut"
    NAME_SAYS_NOTHING = "NameSaysNothing"
    PARAMETERS_UNDESCRIBED = "ParametersUndescribed"
    BOILERPLATE_EXAMPLES = "BoilerplateExamples"
    SCHEMA_COSTLY = "SchemaCostly"
    REQUIRED_UNDECLARED = "RequiredUndeclared"
    PATH_ARGUMENT_UNDECLARED = "PathArgumentUndeclared"


MEANINGS: dict[ConditionReason, str] = {
    ConditionReason.PENDING: "The operator has not looked at this generation yet.",
    ConditionReason.READY: "Everything asked for is in effect.",
    ConditionReason.ACCEPTED: "The object is valid and used.",
    ConditionReason.INDEXED: "The registry has indexed the definition and read it back.",
    ConditionReason.INVALID: "A field is invalid; the message names it and says what is expected.",
    ConditionReason.SCHEMA_UNSAFE: "A JSON schema of the tool is not safe to evaluate; the message says where and why.",
    ConditionReason.HIDDEN_TEXT: "A text of the tool has characters that people do not see and models read: control, bidirectional, tag or"
    " zero-width ones. The message says where and which. With `text.hidden: warn` the tool is used, and Questionable.",
    ConditionReason.NAME_CONFLICT: "An older Tool of this namespace and server has the same name.",
    ConditionReason.QUOTA_EXCEEDED: "The older tools of the namespace fill its quota; the message has the numbers.",
    ConditionReason.NOT_ACCEPTED: "The object is not accepted.",
    ConditionReason.NOT_PUBLISHED: "No registry replica has this generation yet.",
    ConditionReason.NOT_INDEXED: "Listed and callable, but not yet in the search index.",
    ConditionReason.INDEX_UNAVAILABLE: "The search index does not answer; the operator retries.",
    ConditionReason.DISABLED: "spec.state is Disabled: no agent sees the tool.",
    ConditionReason.SERVICE_UNSUPPORTED: "The Service could lead outside its namespace: it has no cluster IP of its own, no selector, or an"
    " EndpointSlice that its controller did not make. The message says which.",
    ConditionReason.SERVICE_MISSING: "The Service that the backend names does not exist, or has no such TCP port. Calls answer 503"
    " `service_pending` until it does.",
    ConditionReason.SERVER_MISSING: "The ToolServer that the backend names does not exist.",
    ConditionReason.SERVER_NOT_ACCEPTED: "The ToolServer that the backend names is not accepted.",
    ConditionReason.NOT_YET_IMPORTED: "No registry replica has read the server's list of tools yet.",
    ConditionReason.VERIFIED: "The server answered a handshake and gave a whole list of its tools.",
    ConditionReason.IMPORTED: "Every tool of the server's list exists as a Tool.",
    ConditionReason.IMPORTING: "The server's list is being written as Tools.",
    ConditionReason.IMPORT_FAILED: "The Tools of the server's list could not be written; the message says why. The operator retries.",
    ConditionReason.TOOLS_LEFT_OUT: "Some tools of the server's list are not imported; the message says which, and why.",
    ConditionReason.SHRUNK: "The server's list came empty or shrank by more than half. Its tools stay until `spec.import.shrinkGrace`"
    " is over.",
    ConditionReason.STDIO_NOT_ALLOWED: "The server is a command, which only the local mode starts, and only if it is allowed; the message has it.",
    ConditionReason.SERVER_ERROR: "The server answered with an error. The tools of its last list stay.",
    ConditionReason.RATE_LIMITED: "The server refuses to be asked so often (HTTP 429). The tools of its last list stay.",
    ConditionReason.AUTHENTICATION_FAILED: "The server refuses the credential.",
    ConditionReason.LOGIN_REQUIRED: "The server demands that a user logs in, which is not supported. The message has its metadata URL.",
    ConditionReason.TRANSPORT_UNSUPPORTED: "The server speaks another transport than streamable HTTP, for example HTTP+SSE.",
    ConditionReason.PROTOCOL_ERROR: "The server's answers are not valid MCP messages.",
    ConditionReason.TOO_LARGE: "The server's list is larger than 2,000 tools, 100 pages or 16 MiB. The tools of its last list stay.",
    ConditionReason.APPROVED: "The tool is as it was approved.",
    ConditionReason.NEVER_APPROVED: "The tool needs approval, and nobody has approved it: it is quarantined.",
    ConditionReason.DRIFTED: "The tool is not what was approved: it is quarantined. The message says what differs.",
    ConditionReason.QUARANTINED: "The tool needs approval. It is not listed and not callable.",
    ConditionReason.TOOLS_CHANGED: "Tools of the server are not what was approved: they are quarantined. The message has their number, and how"
    " the first of them differs.",
    ConditionReason.TOOLS_NEW: "Tools of the server need approval and never had it, also if they were there before: they are quarantined.",
    ConditionReason.NOTHING_DRIFTED: "No tool of the server is quarantined.",
    ConditionReason.ENDPOINTS_READY: "The backend's Service has at least one ready endpoint for the port.",
    ConditionReason.NO_READY_ENDPOINTS: "The backend's Service has no ready endpoint for the port.",
    ConditionReason.CONNECTED: "The registry connected to the backend. It sent no request.",
    ConditionReason.REFUSED: "The backend's host refuses connections to the port.",
    ConditionReason.TIMED_OUT: "The backend did not accept a connection in time.",
    ConditionReason.NAME_NOT_FOUND: "The name of the backend's host cannot be resolved.",
    ConditionReason.TLS_FAILED: "The TLS handshake with the backend failed, or its certificate is not trusted.",
    ConditionReason.UNREACHABLE: "The network has no way to the backend, or the connection failed.",
    ConditionReason.EGRESS_REFUSED: "The registry's egress rules refuse the backend's host or address: calls answer `egress_refused`.",
    ConditionReason.NO_ADDRESS: "The registry knows no address of the backend's Service.",
    ConditionReason.NOT_PROBED: "Unknown: no registry replica has probed the backend yet, or probing is off.",
    ConditionReason.FALLBACK_USABLE: "Each tool that `spec.fallback` names is called while the backend is down.",
    ConditionReason.FALLBACK_REFUSED: "A tool that `spec.fallback` names is never called in the tool's place. The message says why.",
    ConditionReason.CREDENTIAL_MISSING: "The Secret or key that the backend's auth names does not exist or may not be read.",
    ConditionReason.CREDENTIAL_NOT_ALLOWED: "The Secret is not labelled as a backend credential or does not list the host.",
    ConditionReason.UNTRUSTED_LABEL: "The selector uses a namespace label that the operator is not configured to trust.",
    ConditionReason.ADMISSION_POLICY_MISSING: "Written while the admission policies were missing or altered: nobody checked whether"
    " its author may grant this, or resume or run this agent.",
    ConditionReason.ADMISSION_POLICY_UNREAD: "The admission policies could not be read since this was written: it waits, and adds"
    " nothing, until they are.",
    ConditionReason.PROPAGATED: "Every registry replica has confirmed this generation.",
    ConditionReason.NOT_PROPAGATED: "Some registry replica has not confirmed this generation yet.",
    ConditionReason.NO_REPLICAS: "The operator has found no registry replica.",
    ConditionReason.SUSPENDED: "The agent is suspended: its identities get nothing.",
    ConditionReason.NOT_SUSPENDED: "The agent is not suspended: its identities get what bindings grant them.",
    ConditionReason.DEPLOYED: "The workload is as the Agent says.",
    ConditionReason.NOT_DEPLOYED: "The workload is not written yet.",
    ConditionReason.NAMESPACE_NOT_RUN: "The operator runs no agents in this namespace.",
    ConditionReason.NO_IMAGE: "The operator was told no image for agents.",
    ConditionReason.ACCOUNT_MISSING: "The ServiceAccount that the agent runs as does not exist.",
    ConditionReason.MODEL_KEY_MISSING: "The Secret or key that `spec.model.apiKeySecretRef` names does not exist, or lacks the label"
    " `toolcrib.dev/model-key`. Pods that run already stay.",
    ConditionReason.MODEL_KEY_NOT_ALLOWED: "The Secret of the model key does not list the host of `spec.model.baseURL`: nothing runs.",
    ConditionReason.NAME_TAKEN: "Another object has the name of the workload; the operator leaves it alone.",
    ConditionReason.DEPLOY_FAILED: "The API server refused the workload, or did not answer; the message says why. The operator retries.",
    ConditionReason.WAITS_FOR_TOOLS: "The task has not begun: its account has no tool in effect on every replica yet, or the agent is suspended.",
    ConditionReason.DISCOVERING: "The pods have discovered their tools, and follow the registry.",
    ConditionReason.NOT_DISCOVERED: "No pod, or not each of them, has discovered its tools yet.",
    ConditionReason.NOTHING_RUNS: "No pod is to run now: the task is over, or replicas is 0.",
    ConditionReason.ACCESS_REQUESTED: "An agent asks for the tool, and nobody has decided yet.",
    ConditionReason.ACCESS_APPROVED: "A binding of the request's name grants the tool; it says until when.",
    ConditionReason.ACCESS_REJECTED: "The request was rejected; the message says why.",
    ConditionReason.TOOL_MISSING: "The Tool that the canary names does not exist or is not accepted.",
    ConditionReason.CANARY_CONFLICT: "An older ToolCanary tries a definition of the same tool.",
    ConditionReason.NOTHING_TO_TRY: "The candidate is what the tool is already.",
    ConditionReason.ROLLED_BACK: "More calls fail with the candidate than `spec.guard` allows: everyone gets the tool's own definition.",
    ConditionReason.NOT_ROLLED_BACK: "No look has found the candidate worse than `spec.guard` allows.",
    ConditionReason.TRIAL_OVER: "All five looks are done: everyone gets the tool's own definition. `status.result` says what was found.",
    ConditionReason.EXPIRED: "expiresAt has passed: the binding grants nothing any more.",
    ConditionReason.NOT_YET_VALID: "notBefore is in the future: the binding grants nothing yet.",
    ConditionReason.IN_FORCE: "The binding's dates include now.",
    ConditionReason.MATCHES: "At least one tool is within the binding's reach.",
    ConditionReason.MATCHES_NOTHING: "No tool is within the binding's reach.",
    ConditionReason.POWERS_ALONE: "The binding grants only powers of the registry (registry:*), which reach no tool.",
    ConditionReason.NOTHING_ODD: "Nothing about the object looks like a mistake.",
    ConditionReason.EXPIRED_AT_APPLY: "expiresAt was already past when this generation was applied: the binding grants nothing.",
    ConditionReason.SUBJECT_NOT_FOUND: "A ServiceAccount among the subjects (an Agent's is that of its own name) does not exist.",
    ConditionReason.ALLOW_SHADOWED: "The binding's own denials match everything that one of its allow patterns matches.",
    ConditionReason.DENY_NEVER_FIRES: "A deny pattern or scope matches no existing tool in the binding's reach. Tools created later may match.",
    ConditionReason.WILDCARD_ALLOW: "An allow pattern is a glob: it also allows tools that are created later.",
    ConditionReason.SCOPE_SHADOWED: "The binding grants a scope that its own denyScopes denies, so the scope gives no tool.",
    ConditionReason.DENY_HOLDS: "The binding still denies everything that it denied since its last edit.",
    ConditionReason.DENY_STOPPED_MATCHING: "A tool that the binding denied still exists, or exists again, and is no longer denied; or a"
    " deny entry that matched a tool matches none now.",
    ConditionReason.ASKS_FOR_SECRETS: "A text of the tool asks for files, secrets, the conversation or the system prompt.",
    ConditionReason.CONCEALS: "A text of the tool tells the model to keep something from the user.",
    ConditionReason.INSTRUCTS_MODEL: "A text of the tool tells the model what to do beyond calling it: to ignore what it was told, to call it before"
    " all others, or not to ask.",
    ConditionReason.SHADOWS_TOOL: "A text of the tool tells how a tool of another server is to be used.",
    ConditionReason.LOOKS_LIKE_TOOL: "The tool's name or title looks like the name of another tool of the namespace.",
    ConditionReason.ENCODED_TEXT: "A text of the tool holds sentences that are encoded or spelt so that people overlook them, or a command to run.",
    ConditionReason.NO_DESCRIPTION: "The tool has no description: search finds it by its name and parameters alone.",
    ConditionReason.DESCRIPTION_REPEATS_NAME: "The description has no word that is not in the name or server already.",
    ConditionReason.DESCRIPTION_TOO_SHORT: "The description has fewer than three words that say something.",
    ConditionReason.DUPLICATE_DESCRIPTION: "Another active tool of the namespace has the same description, apart from case and"
    " punctuation: only name and server tell the two apart.",
    ConditionReason.DESCRIPTION_CUT: "The description is longer than the embedding model reads: the rest is searched by words only.",
    ConditionReason.NAME_SAYS_NOTHING: "Neither name nor server says what the tool does, as in tool1, run or helper.",
    ConditionReason.PARAMETERS_UNDESCRIBED: "Properties of the input schema have no description.",
    ConditionReason.SCHEMA_COSTLY: "Checking an ordinary call (100 values, 1,000 characters) against the input schema may exceed 50 ms:"
    " such calls are refused with `arguments_too_complex`.",
    ConditionReason.REQUIRED_UNDECLARED: "The input schema requires a property that it does not declare: no caller is told what to send.",
    ConditionReason.PATH_ARGUMENT_UNDECLARED: "A {placeholder} in the backend's path names no property of the input schema: calls without"
    " such an argument are refused, and no caller is told of it.",
    ConditionReason.BOILERPLATE_EXAMPLES: "Three or more active tools of the namespace have the same example.",
}


NEXT_STEPS: dict[ConditionReason, str] = {
    ConditionReason.PENDING: "If this lasts, check that an operator runs and leads.",
    ConditionReason.INVALID: "Correct the field.",
    ConditionReason.SCHEMA_UNSAFE: "Correct the schema, and check it with `toolcrib validate`.",
    ConditionReason.HIDDEN_TEXT: "Delete the characters.",
    ConditionReason.NAME_CONFLICT: "Rename or delete one of them.",
    ConditionReason.QUOTA_EXCEEDED: "Delete tools or raise the quota: the tool is accepted once there is room.",
    ConditionReason.NOT_ACCEPTED: "See the Accepted condition.",
    ConditionReason.NOT_PUBLISHED: "If this lasts, check the registry's pods, and `/readyz` of the operator.",
    ConditionReason.NOT_INDEXED: "Wait; if this lasts, see the registry's `/readyz`.",
    ConditionReason.INDEX_UNAVAILABLE: "Restore Weaviate or the embedder.",
    ConditionReason.DISABLED: "Set `spec.state: Active` to use it.",
    ConditionReason.SERVICE_UNSUPPORTED: "Use a Service with a cluster IP and a selector.",
    ConditionReason.SERVICE_MISSING: "Create the Service, or correct its name or port.",
    ConditionReason.SERVER_MISSING: "Create the ToolServer, or correct its name.",
    ConditionReason.SERVER_NOT_ACCEPTED: "See the ToolServer's conditions.",
    ConditionReason.NOT_YET_IMPORTED: "Wait; if this lasts, check the registry's pods.",
    ConditionReason.IMPORTING: "Wait.",
    ConditionReason.IMPORT_FAILED: "If this lasts, check the operator's rights and the namespace's ResourceQuota.",
    ConditionReason.TOOLS_LEFT_OUT: "Correct those tools at the server, or leave them out with `spec.import.exclude`.",
    ConditionReason.SHRUNK: "If tools are missing by mistake, correct the server before then.",
    ConditionReason.STDIO_NOT_ALLOWED: "Read the command, then start `toolcrib up --allow-stdio=NAMESPACE/NAME`.",
    ConditionReason.SERVER_ERROR: "See the server's own log.",
    ConditionReason.RATE_LIMITED: "Raise `spec.import.refreshInterval`.",
    ConditionReason.AUTHENTICATION_FAILED: "Check `spec.mcp.auth` and its Secret.",
    ConditionReason.LOGIN_REQUIRED: "Give the server a credential that needs no login: `spec.mcp.auth`.",
    ConditionReason.TRANSPORT_UNSUPPORTED: "Use the server's streamable HTTP address, or put a bridge before it.",
    ConditionReason.PROTOCOL_ERROR: "Check that `spec.mcp` names the server's MCP endpoint, path included.",
    ConditionReason.TOO_LARGE: "Make the server list fewer tools, or split it.",
    ConditionReason.NEVER_APPROVED: "Review it: `toolcrib approvals diff NAME`, then `toolcrib approvals approve NAME`.",
    ConditionReason.DRIFTED: "Review the change: `toolcrib approvals diff NAME`, then `toolcrib approvals approve NAME`.",
    ConditionReason.QUARANTINED: "See the Approved condition.",
    ConditionReason.TOOLS_CHANGED: "Review them: `toolcrib approvals list`.",
    ConditionReason.TOOLS_NEW: "Review them: `toolcrib approvals list`.",
    ConditionReason.NO_READY_ENDPOINTS: "Check its pods and its selector.",
    ConditionReason.REFUSED: "Check that the server runs and listens there.",
    ConditionReason.TIMED_OUT: "Check firewalls and network policies.",
    ConditionReason.NAME_NOT_FOUND: "Correct the name, or check the cluster's DNS.",
    ConditionReason.TLS_FAILED: "Use a valid certificate for that name, from an authority that the registry trusts.",
    ConditionReason.UNREACHABLE: "Check the address, routes and network policies.",
    ConditionReason.EGRESS_REFUSED: "Add the host to `egress.allow` if agents may reach it.",
    ConditionReason.NO_ADDRESS: "Outside a cluster, specify it: `--backend namespace/service=host:port`.",
    ConditionReason.NOT_PROBED: "Wait, or turn `backendProbes` on.",
    ConditionReason.FALLBACK_REFUSED: "Correct `spec.fallback`, or the tools that it names.",
    ConditionReason.CREDENTIAL_MISSING: "Create the Secret with that key and its label, or correct its name.",
    ConditionReason.CREDENTIAL_NOT_ALLOWED: "Label the Secret, and list the host in its annotation.",
    ConditionReason.UNTRUSTED_LABEL: "Select by a trusted label, or trust this one in the operator's settings.",
    ConditionReason.ADMISSION_POLICY_MISSING: "Restore them (`helm upgrade`), then write the object again. For a run, the message has the command.",
    ConditionReason.ADMISSION_POLICY_UNREAD: "If this lasts, `/readyz` of the operator says why.",
    ConditionReason.NOT_PROPAGATED: "If this lasts, check the registry's pods, and `/readyz` of the operator.",
    ConditionReason.NO_REPLICAS: "Check that the registry runs and its admin Service selects it.",
    ConditionReason.NOT_DEPLOYED: "See the Deployed condition.",
    ConditionReason.NAMESPACE_NOT_RUN: "An administrator can add it to `agents.namespaces`.",
    ConditionReason.NO_IMAGE: "Set the operator's `--agent-image`; the chart does.",
    ConditionReason.ACCOUNT_MISSING: "Create it, or correct `spec.serviceAccountName`.",
    ConditionReason.MODEL_KEY_MISSING: "Create the Secret with that key and its label, or correct its name.",
    ConditionReason.MODEL_KEY_NOT_ALLOWED: "List the host in the Secret's annotation `toolcrib.dev/hosts`.",
    ConditionReason.NAME_TAKEN: "Delete or rename that object, or the Agent.",
    ConditionReason.DEPLOY_FAILED: "If this lasts, check the operator's rights, and the namespace's quota and policies.",
    ConditionReason.WAITS_FOR_TOOLS: "Bind the account, or resume the agent. Without a tool the task begins after 30 s.",
    ConditionReason.NOT_DISCOVERED: "If this lasts, look at the pods: `kubectl get pods -l toolcrib.dev/agent=NAME`.",
    ConditionReason.ACCESS_REQUESTED: "Decide: `toolcrib access requests`, then `toolcrib access approve NAME --for 4h` or `reject`.",
    ConditionReason.TOOL_MISSING: "Create the Tool, or see its conditions.",
    ConditionReason.CANARY_CONFLICT: "Wait for the older one, or delete one of them.",
    ConditionReason.NOTHING_TO_TRY: "Delete the canary.",
    ConditionReason.ROLLED_BACK: "`toolcrib canary report` has the numbers. Delete the canary.",
    ConditionReason.TRIAL_OVER: "Put a better definition into the Tool, and delete the canary.",
    ConditionReason.EXPIRED: "Renew `spec.expiresAt`, or delete the binding.",
    ConditionReason.NOT_YET_VALID: "Wait, or change `spec.notBefore`.",
    ConditionReason.MATCHES_NOTHING: "Check scopes, servers and patterns.",
    ConditionReason.EXPIRED_AT_APPLY: "Correct `spec.expiresAt`.",
    ConditionReason.SUBJECT_NOT_FOUND: "Create the ServiceAccount, or correct the subject.",
    ConditionReason.ALLOW_SHADOWED: "Remove the pattern, or narrow the denials.",
    ConditionReason.DENY_NEVER_FIRES: "Check the pattern for a typing mistake.",
    ConditionReason.WILDCARD_ALLOW: "Name the tools if later ones should not be allowed.",
    ConditionReason.SCOPE_SHADOWED: "Remove the scope from one of the two lists.",
    ConditionReason.DENY_STOPPED_MATCHING: "Find out who changed the tools. An edit of the binding's spec clears this.",
}
"""What to do, for each reason that is a problem and is no finding of `toolcrib.lint`, which has its own hints."""
