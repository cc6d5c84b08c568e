"""Every metric of the registry. Names and labels are an API: `tests/contract/metrics.txt` lists them.

What a process says of itself (`toolcrib.process`, prometheus_client's ProcessCollector) comes beside them.
"""

from prometheus_client import Counter, Gauge, Histogram

from toolcrib.telemetry.metric import Metric

_LATENCIES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_PROBES = (0.005, 0.025, 0.1, 0.5, 2.5, 5.0)

# fmt: off
METRICS_FOLDED = Metric(Counter, "toolcrib_metrics_folded", ("label",),
    "Observations that count as other: an agent without a binding, or a label beyond its budget.")
DISCOVERIES = Metric(Counter, "toolcrib_discoveries", ("agent", "route"),
    "Lists answered, by agent and route.")
DENIALS = Metric(Counter, "toolcrib_denials", ("agent", "action", "reason", "rule"),
    "Denials of single tools, by agent, action, reason and deciding binding (rule). For "
"tools outside the agent's view the reason is not_permitted, without a rule, unless "
"metrics.reasons is full.")
GRANT_USES = Metric(Counter, "toolcrib_grant_uses", ("kind", "grant"),
    "Calls allowed by a binding; where several grant only together, the first counts.")
GRANT_LAST_USED_TIMESTAMP_SECONDS = Metric(Gauge, "toolcrib_grant_last_used_timestamp_seconds", ("kind", "grant"),
    "When this replica last allowed a call by a binding (as toolcrib_grant_uses_total).")
GRANT_TOOL_LAST_USED_TIMESTAMP_SECONDS = Metric(
    Gauge, "toolcrib_grant_tool_last_used_timestamp_seconds", ("kind", "grant", "tool"),
    "When this replica last allowed a call of a tool by a binding (as toolcrib_grant_uses_total).")
LIMITED_CALLS = Metric(Counter, "toolcrib_limited_calls", ("kind", "grant", "limit"),
    "Calls refused because a limit was used up: per_minute, per_day or concurrent of a "
"binding; default_concurrent is the agent's own on this replica.")
COUNTER_STORE_ERRORS = Metric(Counter, "toolcrib_counter_store_errors", (),
    "Requests that the counter store did not answer: calls of read-only tools were allowed "
"uncounted, others refused.")
DECISIONS = Metric(Counter, "toolcrib_decisions", ("action", "allowed", "reason"),
    "Decisions about single tools.")
CALLS = Metric(Counter, "toolcrib_calls", ("agent", "tool", "server", "outcome"),
    "Tool calls by outcome: ok, or the code of the problem.")
FALLBACK_CALLS = Metric(Counter, "toolcrib_fallback_calls", ("tool", "outcome"),
    "Calls of a fallback in the place of `tool`, whose backend is down, by outcome. They count in toolcrib_calls_total, too.")
CALL_DURATION_SECONDS = Metric(Histogram, "toolcrib_call_duration_seconds", ("tool", "server", "outcome"),
    "Duration of a call, the registry's own part included.", _LATENCIES)
CALL_CONFIRMATIONS = Metric(Counter, "toolcrib_call_confirmations", ("outcome",),
    "Confirmations of single calls at this replica: asked, confirmed, rejected, used, expired.")
CONFIRMATION_OUTCOMES = ("asked", "confirmed", "rejected", "used", "expired")
CALLS_AWAITING_CONFIRMATION = Metric(Gauge, "toolcrib_calls_awaiting_confirmation", (),
    "Calls that this replica knows to wait for a person.")
CALLS_CUT = Metric(Counter, "toolcrib_calls_cut", ("reason",),
    "Calls cut while in progress because their grant ended.")
SEARCH_DURATION_SECONDS = Metric(Histogram, "toolcrib_search_duration_seconds", ("mode",),
    "Duration of a search.", _LATENCIES)
SEARCHES_EMPTY = Metric(Counter, "toolcrib_searches_empty", ("mode",), "Searches that found nothing.")
SEARCHES_DEGRADED = Metric(Counter, "toolcrib_searches_degraded", (),
    "Searches answered without the index or embedder.")
AUTHENTICATIONS_REFUSED = Metric(Counter, "toolcrib_authentications_refused", (),
    "Requests with an invalid token.")
SESSION_CLAIMS_IGNORED = Metric(Counter, "toolcrib_session_claims_ignored", (),
    "Requests whose x-toolcrib-session was left out of the decision log: not of the form "
"id/turn, or sent twice.")
VALIDATOR_EVICTIONS = Metric(Counter, "toolcrib_validator_evictions_total", (),
    "Compiled schemas evicted to make room; each is compiled again at its next call.")
WATCH_STREAMS = Metric(Gauge, "toolcrib_watch_streams", (), "Open watch streams.")
WATCH_EVENTS = Metric(Counter, "toolcrib_watch_events", ("type",), "Watch events sent.")
WATCH_STREAMS_DROPPED = Metric(Counter, "toolcrib_watch_streams_dropped", (),
    "Watch streams closed because the reader was slow.")
PUBLISHES = Metric(Counter, "toolcrib_publishes", ("result",), "Publishes by result.")
QUERIES_EMBEDDED = Metric(Counter, "toolcrib_queries_embedded", (),
    "Search requests that were embedded, each once with its parts.")
QUERIES_REUSED = Metric(Counter, "toolcrib_queries_reused", (),
    "Search requests whose vectors were kept already, or being made for another search.")
INDEX_TOOLS = Metric(Gauge, "toolcrib_index_tools", (),
    "Tools of the snapshot that were read back unchanged from the search index; NaN if the "
"operator has not asked this replica for two minutes.")
INDEX_LAG_TOOLS = Metric(Gauge, "toolcrib_index_lag_tools", (),
    "Tools of the snapshot that the index is not known to hold in their current version, "
"counted at this scrape; NaN if the operator has not asked this replica for two minutes.")
INDEX_EMBEDDED_TOOLS = Metric(Counter, "toolcrib_index_embedded_tools", (),
    "Tools whose text was embedded for the index.")
INDEX_REUSED_TOOLS = Metric(Counter, "toolcrib_index_reused_tools", (),
    "Tools indexed with existing vectors, because their text was unchanged or known.")
INDEX_WRITTEN_TOOLS = Metric(Counter, "toolcrib_index_written_tools", (),
    "Tools written to the search index.")
INDEX_HEALTHY = Metric(Gauge, "toolcrib_index_healthy", (),
    "1 if the search index answered at this scrape, else 0.")
INDEX_LAST_WRITE_TIMESTAMP_SECONDS = Metric(Gauge, "toolcrib_index_last_write_timestamp_seconds", (),
    "When this replica last wrote tools to the search index or removed some; 0 if it has not since its start.")
EMBED_FAILURES = Metric(Counter, "toolcrib_embed_failures", ("purpose",),
    "Requests to the embedder that failed, for a query or for documents to be indexed.")
CERTIFICATE_EXPIRY_TIMESTAMP_SECONDS = Metric(Gauge, "toolcrib_certificate_expiry_timestamp_seconds", ("listener",),
    "When the certificate that a listener serves expires; `agents`, `metrics` or `admin`.")
CONNECTIONS = Metric(Gauge, "toolcrib_connections", ("listener",),
    "Open connections to a listener; `agents` (in the local mode: all), `metrics` or `admin`.")
CONNECTIONS_CLOSED = Metric(Counter, "toolcrib_connections_closed", ("listener", "reason"),
    "Connections refused or closed because of their client: handshake, headers, body or "
"answer (too slow), header_bytes (too many), connections, connections_per_peer (limit "
"reached).")
BUILD_INFO = Metric(Gauge, "toolcrib_build_info", ("version",), "Always 1; the version is a label.")
AUDIT_RECORDS = Metric(Counter, "toolcrib_audit_records", (),
    "Records of the decision log that were written, without those that state the policy and explain callers.")
DECISION_LOG_DROPPED_RECORDS = Metric(Counter, "toolcrib_decision_log_dropped_records", (),
    "Decision records lost to a full queue, or not written when the registry stopped.")
AUDIT_WRITE_ERRORS = Metric(Counter, "toolcrib_audit_write_errors", (),
    "Failed writes of the decision log; the records wait and the write is retried.")
AUDIT_HEAD_SEQ = Metric(Gauge, "toolcrib_audit_head_seq", (),
    "Number of the decision log's last record in its chain.")
CATALOG_TOOLS = Metric(Gauge, "toolcrib_catalog_tools", (), "Active tools of the snapshot.")
SNAPSHOT_BINDINGS = Metric(Gauge, "toolcrib_snapshot_bindings", (), "Bindings of the snapshot.")
POLICY_EPOCH = Metric(Gauge, "toolcrib_policy_epoch", (), "Epoch of the revision held.")
POLICY_SEQ = Metric(Gauge, "toolcrib_policy_seq", (), "Sequence number of the revision held.")
POLICY_AGE_SECONDS = Metric(Gauge, "toolcrib_policy_age_seconds", (), "Seconds since the last operator heartbeat.")
BACKEND_CALLS_IN_PROGRESS = Metric(Gauge, "toolcrib_backend_calls_in_progress", (),
    "Calls to backends in progress.")
BACKEND_CALLS_WAITING = Metric(Gauge, "toolcrib_backend_calls_waiting", (),
    "Calls waiting for room at their backend.")
BACKEND_BREAKERS_OPEN = Metric(Gauge, "toolcrib_backend_breakers_open", (),
    "Backends whose circuit breaker is open on this replica: their calls are refused.")
BACKEND_BREAKER_OPENINGS = Metric(Counter, "toolcrib_backend_breaker_openings", (),
    "Times that a backend's circuit breaker opened; the log names the backend.")
TOKEN_OUTCOMES = ("granted", "refused", "down", "not_allowed")
TOKEN_REQUESTS = Metric(Counter, "toolcrib_backend_token_requests", ("outcome",),
    "Requests for access tokens of backends, by outcome: granted, refused by the authorization server, down, or not allowed by"
    " the guard or the Secret; the log names the backend.")
BACKENDS = Metric(Gauge, "toolcrib_backends", ("outcome",),
    "Backends by the outcome of their last probe; all 0 where another replica probes them, or none.")
BACKEND_PROBE_DURATION_SECONDS = Metric(Histogram, "toolcrib_backend_probe_duration_seconds", ("outcome",),
    "Time of a probe: a connection to a backend's host and port that is closed at once.", _PROBES)
SERVER_UP = Metric(Gauge, "toolcrib_server_up", ("server_namespace", "server"),
    "1 if the last look at an MCP server brought its whole list of tools, else 0; only on the replica that imports.")
SERVER_LISTS = Metric(Counter, "toolcrib_server_lists", ("outcome",),
    "Looks at the lists of MCP servers, by outcome.")
SNAPSHOT_STAGED_BYTES = Metric(Gauge, "toolcrib_snapshot_staged_bytes", (),
    "Chunks of a full snapshot that is not committed yet.")
VALIDATOR_BYTES = Metric(Gauge, "toolcrib_validator_bytes", (),
    "Estimated memory of compiled schemas (`limits.validator_bytes`).")
