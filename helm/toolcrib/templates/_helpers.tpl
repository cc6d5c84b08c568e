{{/* Names, labels and small decisions that every template shares. */}}

{{- define "toolcrib.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* At most 40 characters: suffixes, a pod's hash and a StatefulSet's revision have to fit into 63. */}}
{{- define "toolcrib.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "toolcrib.name" . -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | replace "." "-" | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "toolcrib.chart" -}}
{{- printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Labels of an object. Call with (list $ "component"), "" for what belongs to no component. */}}
{{- define "toolcrib.labels" -}}
{{- $root := index . 0 -}}
{{- include "toolcrib.selectorLabels" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service | quote }}
app.kubernetes.io/part-of: toolcrib
helm.sh/chart: {{ include "toolcrib.chart" $root | quote }}
{{- with $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "toolcrib.selectorLabels" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
app.kubernetes.io/name: {{ include "toolcrib.name" $root | quote }}
app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
{{- with $component }}
app.kubernetes.io/component: {{ . | quote }}
{{- end }}
{{- end -}}

{{/* An `annotations:` block from commonAnnotations and further ones, or nothing. Call with (list $ (dict …)). */}}
{{- define "toolcrib.annotations" -}}
{{- $all := merge (dict) (index . 1) (index . 0).Values.commonAnnotations -}}
{{- with $all }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* metadata of an object: (list $ "component" "name" (dict "annotation" "value")). */}}
{{- define "toolcrib.metadata" -}}
{{- $root := index . 0 -}}
name: {{ index . 2 | quote }}
labels:
  {{- include "toolcrib.labels" (list $root (index . 1)) | nindent 2 }}
{{- include "toolcrib.annotations" (list $root (index . 3)) }}
{{- end -}}

{{/* An image: (list $ .Values.x.image). What the component leaves empty comes from .Values.image. */}}
{{- define "toolcrib.image" -}}
{{- $global := (index . 0).Values.image -}}
{{- $own := index . 1 | default dict -}}
{{- $repository := $own.repository | default $global.repository -}}
{{- $tag := $own.tag | default $global.tag | default (index . 0).Chart.AppVersion -}}
{{- $digest := $own.digest | default (ternary "" $global.digest (ne ($own.tag | default "") "")) -}}
{{- if $digest -}}{{ $repository }}@{{ $digest }}{{- else -}}{{ $repository }}:{{ $tag }}{{- end -}}
{{- end -}}

{{- define "toolcrib.pullPolicy" -}}
{{- (index . 1 | default dict).pullPolicy | default (index . 0).Values.image.pullPolicy -}}
{{- end -}}

{{/* Name of a component's service account: (list $ .Values.operator "operator"). */}}
{{- define "toolcrib.serviceAccountName" -}}
{{- $own := (index . 1).serviceAccount | default dict -}}
{{- $name := printf "%s-%s" (include "toolcrib.fullname" (index . 0)) (index . 2) -}}
{{- if $own.name -}}{{ $own.name }}{{- else if dig "create" true $own -}}{{ $name }}{{- else -}}default{{- end -}}
{{- end -}}

{{- define "toolcrib.embedded" -}}
{{- if eq .Values.profile "embedded" }}true{{ end -}}
{{- end -}}

{{- define "toolcrib.tls" -}}
{{- if ne .Values.tls.mode "off" }}true{{ end -}}
{{- end -}}

{{- define "toolcrib.weaviate.bundled" -}}
{{- if and (eq .Values.profile "weaviate") (eq .Values.weaviate.mode "bundled") }}true{{ end -}}
{{- end -}}

{{/* Replicas of the registry; nothing where an autoscaler chooses. */}}
{{- define "toolcrib.registry.replicas" -}}
{{- if include "toolcrib.embedded" . -}}{{ ternary "0" "1" (eq (toString .Values.registry.replicas) "0") }}
{{- else if .Values.registry.autoscaling.enabled -}}
{{- else if kindIs "invalid" .Values.registry.replicas -}}2
{{- else -}}{{ int .Values.registry.replicas }}
{{- end -}}
{{- end -}}

{{- define "toolcrib.registry.servicePort" -}}
{{- .Values.registry.service.port | default (ternary 443 80 (eq (include "toolcrib.tls" .) "true")) | int -}}
{{- end -}}

{{- define "toolcrib.registry.host" -}}
{{- include "toolcrib.fullname" . }}-registry.{{ .Release.Namespace }}.svc
{{- end -}}

{{- define "toolcrib.registry.publicHost" -}}
{{- .Values.registry.publicHost | default (include "toolcrib.registry.host" .) -}}
{{- end -}}

{{- define "toolcrib.registry.publicPort" -}}
{{- if .Values.registry.publicPort -}}{{ int .Values.registry.publicPort }}
{{- else -}}{{ include "toolcrib.registry.servicePort" . }}
{{- end -}}
{{- end -}}

{{/* The registry's address for pods of this cluster. */}}
{{- define "toolcrib.registry.url" -}}
{{- $tls := eq (include "toolcrib.tls" .) "true" -}}
{{- $port := include "toolcrib.registry.servicePort" . | int -}}
{{- printf "%s://%s" (ternary "https" "http" $tls) (include "toolcrib.registry.host" .) -}}
{{- if ne $port (ternary 443 80 $tls) -}}:{{ $port }}{{- end -}}
{{- end -}}

{{/* Seconds as a duration's whole number, and a stable short hash of any value. */}}
{{- define "toolcrib.hash" -}}
{{- toJson . | sha256sum | trunc 16 -}}
{{- end -}}

{{/* `agents.items`; none where `agents` is a list, which is refused with a hint. */}}
{{- define "toolcrib.agents.items" -}}
{{- if kindIs "map" .Values.agents }}{{ .Values.agents.items | default list | toJson }}{{ else }}[]{{ end -}}
{{- end -}}

{{/* Namespaces in which the operator may run Agents, as JSON. */}}
{{- define "toolcrib.agentNamespaces" -}}
{{- if kindIs "map" .Values.agents }}{{ .Values.agents.namespaces | default list | toJson }}{{ else }}[]{{ end -}}
{{- end -}}

{{/* The namespace of an entry of `agents.items`: (list $ ENTRY). */}}
{{- define "toolcrib.agentNamespace" -}}
{{- (index . 1).namespace | default (first (include "toolcrib.agentNamespaces" (index . 0) | fromJsonArray)) -}}
{{- end -}}

{{/* Labels of the pods that the operator runs for Agents; it sets them itself. */}}
{{- define "toolcrib.agentPods" -}}
app.kubernetes.io/name: toolcrib
app.kubernetes.io/component: agent
app.kubernetes.io/managed-by: toolcrib-operator
{{- end -}}

{{/* The ServiceAccount of an entry of `agents.items`: (list $ ENTRY). */}}
{{- define "toolcrib.agentAccount" -}}
{{- $entry := index . 1 -}}
{{- dig "serviceAccount" "name" "" $entry | default (printf "%s-agent-%s" (include "toolcrib.fullname" (index . 0)) $entry.name) -}}
{{- end -}}

{{/* The ConfigMap with the authority's certificates that pods of Agents mount, in each of their namespaces. */}}
{{- define "toolcrib.agentCA" -}}
{{- if eq (include "toolcrib.tls" .) "true" -}}
{{- .Values.tls.ca.configMap | default (printf "%s-ca" (include "toolcrib.fullname" .)) -}}
{{- end -}}
{{- end -}}

{{/* The operator as the API server knows it. */}}
{{- define "toolcrib.operator.user" -}}
{{- printf "system:serviceaccount:%s:%s" .Release.Namespace (include "toolcrib.serviceAccountName" (list . .Values.operator "operator")) -}}
{{- end -}}
