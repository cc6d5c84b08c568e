{{/* What the optional objects share: their metadata, the rules of NetworkPolicies, the names of scraped jobs. */}}

{{/*
metadata of an optional object, whose labels and annotations users may add to; theirs win.
(dict "root" $ "component" "registry" "name" NAME "namespace" "" "labels" (dict) "annotations" (dict))
*/}}
{{- define "toolcrib.optional.metadata" -}}
name: {{ .name | quote }}
{{- with .namespace }}
namespace: {{ . | quote }}
{{- end }}
labels:
  {{- $labels := fromYaml (include "toolcrib.labels" (list .root .component)) }}
  {{- toYaml (merge (dict) (.labels | default dict) $labels) | nindent 2 }}
{{- include "toolcrib.annotations" (list .root (.annotations | default dict)) }}
{{- end -}}

{{/* The labels of a component's pods, as a selector: (list $ "component"), "" for all of the release. */}}
{{- define "toolcrib.flow.pods" -}}
podSelector:
  matchLabels:
    {{- include "toolcrib.selectorLabels" . | nindent 4 }}
{{- end -}}

{{/*
One rule of a NetworkPolicy: (dict "key" "from"|"to" "peers" LIST "ports" LIST), ports by name or number, none: all.
Without peers there is no rule, so nothing passes: NetworkPolicy itself takes an empty list for "everybody".
*/}}
{{- define "toolcrib.flow" -}}
{{- if .peers -}}
- {{ .key }}:
    {{- toYaml .peers | nindent 4 }}
  {{- with include "toolcrib.flow.ports" .ports }}
  {{- . | nindent 2 }}
  {{- end }}
{{- end -}}
{{- end -}}

{{/* Who may scrape, as peers of a NetworkPolicy: a JSON list, empty where nobody may. */}}
{{- define "toolcrib.metrics.from" -}}
{{- $from := .Values.metrics.from -}}
{{- $peers := list -}}
{{- if $from.namespaces -}}
{{- /* The API server sets this label: no owner of a namespace can take another's name. */}}
{{- $named := dict "matchExpressions" (list (dict "key" "kubernetes.io/metadata.name" "operator" "In" "values" $from.namespaces)) -}}
{{- $peer := dict "namespaceSelector" (ternary dict $named (has "*" $from.namespaces)) -}}
{{- with $from.pods -}}{{- $_ := set $peer "podSelector" (dict "matchLabels" .) -}}{{- end -}}
{{- $peers = list $peer -}}
{{- end -}}
{{- toJson $peers -}}
{{- end -}}

{{- define "toolcrib.flow.ports" -}}
{{- with . -}}
ports:
  {{- range . }}
  - {protocol: TCP, port: {{ . }}}
  {{- end }}
{{- end -}}
{{- end -}}

{{/*
To the API server, by address: no label selects it. What this cluster says its addresses are comes on top of private
networks, which hold those of most; a list in the values stands alone. Its own ports come on top in any case: Minikube
and MicroK8s, say, have others than most.
*/}}
{{- define "toolcrib.flow.apiServer" -}}
{{- $addresses := .Values.networkPolicy.apiServerCIDRs -}}
{{- $slice := lookup "discovery.k8s.io/v1" "EndpointSlice" "default" "kubernetes" | default dict -}}
{{- $ports := list -}}
{{- range .Values.networkPolicy.apiServerPorts -}}
{{- $ports = append $ports (int .) -}}
{{- end -}}
{{- range $slice.ports | default list -}}
{{- $ports = append $ports (int .port) -}}
{{- end -}}
{{- if not $addresses -}}
{{- $addresses = list "10.0.0.0/8" "100.64.0.0/10" "172.16.0.0/12" "192.168.0.0/16" "fc00::/7" -}}
{{- range $slice.endpoints | default list -}}
{{- range .addresses -}}
{{- $addresses = append $addresses (printf "%s/%s" . (ternary "128" "32" (contains ":" .))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
- to:
    {{- range $addresses }}
    - ipBlock: {cidr: {{ . | quote }}}
    {{- end }}
  {{- include "toolcrib.flow.ports" (uniq $ports) | nindent 2 }}
{{- end -}}

{{/* To the cluster's DNS. An empty list would mean every address or port, so then there is no rule. */}}
{{- define "toolcrib.flow.dns" -}}
{{- if and .Values.networkPolicy.dnsEgress .Values.networkPolicy.dnsPorts -}}
- to:
    {{- toYaml .Values.networkPolicy.dnsEgress | nindent 4 }}
  ports:
    {{- range .Values.networkPolicy.dnsPorts }}
    - {protocol: UDP, port: {{ . }}}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
{{- end -}}
{{- end -}}

{{/* To public addresses, and to none that is private, shared or link-local; without ports there is no rule. */}}
{{- define "toolcrib.flow.outside" -}}
{{- if .Values.networkPolicy.outsidePorts -}}
- to:
    - ipBlock:
        cidr: 0.0.0.0/0
        except: [10.0.0.0/8, 100.64.0.0/10, 169.254.0.0/16, 172.16.0.0/12, 192.168.0.0/16]
    - ipBlock:
        cidr: ::/0
        except: ["fc00::/7", "fe80::/10"]
  {{- include "toolcrib.flow.ports" .Values.networkPolicy.outsidePorts | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* How a monitor speaks to the registry: over TLS, with the authority from where the pods have it. */}}
{{- define "toolcrib.monitor.tls" -}}
{{- $ca := .Values.tls.ca -}}
scheme: https
tlsConfig:
  serverName: {{ include "toolcrib.registry.host" . }}
  ca:
    {{- if $ca.configMap }}
    configMap: {name: {{ $ca.configMap | quote }}, key: ca.crt}
    {{- else if or $ca.bundle (eq .Values.tls.mode "generate") }}
    configMap: {name: {{ include "toolcrib.fullname" . }}-ca, key: ca.crt}
    {{- else }}
    secret: {name: {{ include "toolcrib.tlsSecret" (list . "registry") | quote }}, key: ca.crt}
    {{- end }}
{{- end -}}

{{/* A rule file of the chart: (list $ PATH). Links to runbooks lead somewhere, or are not there. */}}
{{- define "toolcrib.rules" -}}
{{- $root := index . 0 -}}
{{- $text := $root.Files.Get (index . 1) -}}
{{- with $root.Values.monitoring.rules.runbookBase -}}
{{- $text = $text | replace "__RUNBOOK_BASE__" (trimSuffix "/" .) -}}
{{- else -}}
{{- $text = regexReplaceAll "(?m)^ *runbook_url:.*__RUNBOOK_BASE__.*\n?" $text "" -}}
{{- end -}}
{{- trim $text -}}
{{- end -}}
