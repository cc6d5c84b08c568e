{{/* registry.yaml from the values; registry.config is merged over it. */}}
{{- define "toolcrib.registry.config" -}}
{{- $r := .Values.registry -}}
{{- $tls := eq (include "toolcrib.tls" .) "true" -}}
{{- $c := dict "host" "0.0.0.0" "port" 8080 "admin_host" "0.0.0.0" "admin_port" 8081 -}}
{{- $metrics := dict "host" "0.0.0.0" "port" 8091 "reasons" .Values.metrics.reasons -}}
{{- if $tls -}}
{{- $pair := dict "cert_file" "/etc/toolcrib/tls/tls.crt" "key_file" "/etc/toolcrib/tls/tls.key" -}}
{{- $_ := set $c "tls" $pair -}}
{{- $_ := set $c "admin_tls" $pair -}}
{{- $_ := set $metrics "tls" $pair -}}
{{- end -}}
{{- $_ := set $c "metrics" $metrics -}}
{{- $_ := set $c "public_host" (include "toolcrib.registry.publicHost" .) -}}
{{- $_ := set $c "public_port" (include "toolcrib.registry.publicPort" . | int) -}}
{{- $_ := set $c "public_url" (include "toolcrib.registry.publicUrl" .) -}}
{{- $_ := set $c "allowed_hosts" (concat (include "toolcrib.registry.hosts" . | fromJsonArray) ($r.allowedHosts | default list) | uniq) -}}
{{- with $r.allowedOrigins -}}{{- $_ := set $c "allowed_origins" . -}}{{- end -}}
{{- $cluster := dict "audience" (list $r.audience) "cluster" true "scopes" "bindings" "token_file" "/var/run/secrets/toolcrib/token" "ca_file" "/var/run/secrets/toolcrib/ca.crt" -}}
{{- with $r.clusterIssuer -}}{{- $_ := set $cluster "issuer" . -}}{{- end -}}
{{- with $r.clusterJwksUri -}}{{- $_ := set $cluster "jwks_uri" . -}}{{- end -}}
{{- $_ := set $c "issuers" (prepend (.Values.issuers | default list) $cluster) -}}
{{- $operator := printf "system:serviceaccount:%s:%s" .Release.Namespace (include "toolcrib.serviceAccountName" (list . .Values.operator "operator")) -}}
{{- $_ := set $c "admin_subjects" (prepend ($r.adminSubjects | default list) $operator | uniq) -}}
{{- $discovery := omit $r.discovery "stepUp" -}}
{{- if $r.discovery.stepUp -}}{{- $_ := set $discovery "step_up" true -}}{{- end -}}
{{- $_ := set $c "discovery" $discovery -}}
{{- /* only what is on: images of earlier versions do not know it */}}
{{- $mcp := dict -}}
{{- if $r.mcp.splitCalls -}}{{- $_ := set $mcp "split_calls" true -}}{{- end -}}
{{- if $r.mcp.requestAccess -}}{{- $_ := set $mcp "request_access" true -}}{{- end -}}
{{- if $r.mcp.compatibleNames -}}{{- $_ := set $mcp "compatible_names" true -}}{{- end -}}
{{- with $mcp -}}{{- $_ := set $c "mcp" . -}}{{- end -}}
{{- $oauth := dict -}}
{{- if not (kindIs "invalid" $r.oauth.authorizationServers) -}}{{- $_ := set $oauth "authorization_servers" $r.oauth.authorizationServers -}}{{- end -}}
{{- with $r.oauth.scopesSupported -}}{{- $_ := set $oauth "scopes_supported" . -}}{{- end -}}
{{- with $oauth -}}{{- $_ := set $c "oauth" . -}}{{- end -}}
{{- $store := dict "kind" "embedded" "path" "/data/index" -}}
{{- if not (include "toolcrib.embedded" .) -}}
{{- $w := .Values.weaviate -}}
{{- $store = dict "kind" "weaviate" "replicas" (int $w.replicationFactor) "collection_prefix" $w.collectionPrefix -}}
{{- if eq $w.mode "bundled" -}}
{{- $host := printf "%s-weaviate.%s.svc" (include "toolcrib.fullname" .) .Release.Namespace -}}
{{- $store = merge $store (dict "host" $host "http_port" 8080 "grpc_port" 50051 "tls" $tls) -}}
{{- if $tls -}}{{- $_ := set $store "ca_file" "/etc/toolcrib/weaviate/ca.crt" -}}{{- end -}}
{{- else -}}
{{- $e := $w.external -}}
{{- $store = merge $store (dict "host" $e.host "http_port" (int $e.httpPort) "grpc_port" (int $e.grpcPort) "tls" $e.tls) -}}
{{- with $e.grpcHost -}}{{- $_ := set $store "grpc_host" . -}}{{- end -}}
{{- if and $e.tls $e.caSecret.name -}}{{- $_ := set $store "ca_file" "/etc/toolcrib/weaviate/ca.crt" -}}{{- end -}}
{{- end -}}
{{- if include "toolcrib.weaviate.keySecret" . -}}{{- $_ := set $store "api_key_file" "/etc/toolcrib/weaviate/api-key" -}}{{- end -}}
{{- end -}}
{{- $_ := set $c "store" $store -}}
{{- $embedder := dict "kind" $r.embedder.kind -}}
{{- if eq $r.embedder.kind "openai" -}}
{{- $embedder = merge $embedder (dict "base_url" $r.embedder.baseUrl "model" $r.embedder.model "dimension" (int $r.embedder.dimension)) -}}
{{- if $r.embedder.apiKeySecret.name -}}{{- $_ := set $embedder "api_key_file" "/etc/toolcrib/embedder/api-key" -}}{{- end -}}
{{- end -}}
{{- if eq $r.embedder.kind "onnx" -}}{{- $_ := set $embedder "path" $r.embedder.path -}}{{- end -}}
{{- $_ := set $c "embedder" $embedder -}}
{{- $_ := set $c "search" (dict "resident_bytes" (int64 $r.search.residentBytes)) -}}
{{- $_ := set $c "egress" (dict "allow" (.Values.egress.allow | default list) "cluster" (.Values.egress.cluster | default list) "cluster_domain" .Values.clusterDomain) -}}
{{- with $r.trustedProxies -}}{{- $_ := set $c "trusted_proxies" . -}}{{- end -}}
{{- with $r.limits -}}{{- $_ := set $c "limits" . -}}{{- end -}}
{{- $counters := dict "kind" $r.counters.kind -}}
{{- if eq $r.counters.kind "redis" -}}
{{- $counters = merge $counters (dict "url" $r.counters.url "timeout" $r.counters.timeout) -}}
{{- with $r.counters.username -}}{{- $_ := set $counters "username" . -}}{{- end -}}
{{- if $r.counters.passwordSecret.name -}}{{- $_ := set $counters "password_file" "/etc/toolcrib/counters/password" -}}{{- end -}}
{{- if $r.counters.caSecret.name -}}{{- $_ := set $counters "ca_file" "/etc/toolcrib/counters/ca.crt" -}}{{- end -}}
{{- else if include "toolcrib.registry.several" . -}}
{{- $_ := set $counters "several" true -}}
{{- end -}}
{{- $_ := set $c "counters" $counters -}}
{{- $_ := set $c "policy_max_age" $r.policyMaxAge -}}
{{- $_ := set $c "drain_seconds" $r.drainSeconds -}}
{{- $_ := set $c "finish_seconds" $r.finishSeconds -}}
{{- if $r.audit.enabled -}}
{{- $audit := dict "path" "-" "mode" $r.audit.mode "arguments" $r.audit.arguments "key_file" "/etc/toolcrib/audit/key" -}}
{{- if eq $r.audit.destination "file" -}}
{{- $audit = merge (dict "path" (printf "%s/decisions.jsonl" (include "toolcrib.audit.folder" .)) "max_bytes" (int $r.audit.maxBytes) "keep" (int $r.audit.keep)) $audit -}}
{{- end -}}
{{- $_ := set $c "audit" $audit -}}
{{- end -}}
{{- $_ := set $c "assertion" (dict "issuer" (include "toolcrib.assertion.issuer" .) "keys" "/etc/toolcrib/assertion") -}}
{{- if .Values.runtimeRegistration.enabled -}}
{{- $_ := set $c "registration" true -}}
{{- end -}}
{{- $_ := set $c "runtime_namespace" .Values.runtimeRegistration.namespace -}}
{{- toYaml (mergeOverwrite $c (deepCopy $r.config)) -}}
{{- end -}}

{{/* Whether there may be more than one pod of the registry. */}}
{{- define "toolcrib.registry.several" -}}
{{- if and (not (include "toolcrib.embedded" .)) (or .Values.registry.autoscaling.enabled (gt (include "toolcrib.registry.replicas" . | int) 1)) -}}true{{- end -}}
{{- end -}}

{{/* The folder of the decision log: with the embedded index on a volume of its own, there. */}}
{{- define "toolcrib.audit.folder" -}}
{{- if and (include "toolcrib.embedded" .) .Values.registry.persistence.enabled (not .Values.registry.audit.volume.existingClaim) -}}/data/audit{{- else -}}/var/log/toolcrib{{- end -}}
{{- end -}}

{{/* The Secret that the decision log is chained with. */}}
{{- define "toolcrib.audit.keySecret" -}}
{{- .Values.registry.audit.key.existingSecret | default (printf "%s-audit-key" (include "toolcrib.fullname" .)) -}}
{{- end -}}

{{/* The Secret with the keys of call assertions. */}}
{{- define "toolcrib.assertion.keySecret" -}}
{{- .Values.registry.assertion.keys.existingSecret | default (printf "%s-assertion-keys" (include "toolcrib.fullname" .)) -}}
{{- end -}}

{{/* `iss` of call assertions. */}}
{{- define "toolcrib.assertion.issuer" -}}
{{- .Values.registry.assertion.issuer | default (include "toolcrib.registry.publicUrl" .) -}}
{{- end -}}

{{/* The registry's public URL. */}}
{{- define "toolcrib.registry.publicUrl" -}}
{{- $port := include "toolcrib.registry.publicPort" . | int -}}
{{- $tls := or (eq (include "toolcrib.tls" .) "true") (eq $port 443) -}}
{{- $made := printf "%s://%s" (ternary "https" "http" $tls) (include "toolcrib.registry.publicHost" .) -}}
{{- if ne $port (ternary 443 80 $tls) -}}{{- $made = printf "%s:%d" $made $port -}}{{- end -}}
{{- .Values.registry.publicUrl | default $made -}}
{{- end -}}

{{/* The Secret with Weaviate's API key, where there is one. */}}
{{- define "toolcrib.weaviate.keySecret" -}}
{{- if .Values.weaviate.apiKey.existingSecret -}}
{{- .Values.weaviate.apiKey.existingSecret -}}
{{- else if include "toolcrib.weaviate.bundled" . -}}
{{- include "toolcrib.fullname" . }}-weaviate-key
{{- end -}}
{{- end -}}
