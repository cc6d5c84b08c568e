{{/* What the optional objects share: their metadata, the rules of NetworkPolicies, the names of scraped jobs. */}}

{{/*
metadata of an optional object, whose labels and annotations users may add to; theirs win.
(dict "root" $ "component" "registry" "name" NAME "namespace" "" "labels" (dict) "annotations" (dict))
*/}}
{{- define "toolcrib.optional.metadata" -}}
name: {{ .name }}
{{- with .namespace }}
namespace: {{ . }}
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
networks, which hold those of most; a list in the values stands alone.
*/}}
{{- define "toolcrib.flow.apiServer" -}}
{{- $addresses := .Values.networkPolicy.apiServerCIDRs -}}
{{- if not $addresses -}}
{{- $addresses = list "10.0.0.0/8" "100.64.0.0/10" "172.16.0.0/12" "192.168.0.0/16" "fc00::/7" -}}
{{- $slice := lookup "discovery.k8s.io/v1" "EndpointSlice" "default" "kubernetes" | default dict -}}
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
  {{- include "toolcrib.flow.ports" .Values.networkPolicy.apiServerPorts | nindent 2 }}
{{- end -}}

{{/* To public addresses, and to none that is private, shared or link-local. */}}
{{- define "toolcrib.flow.outside" -}}
- to:
    - ipBlock:
        cidr: 0.0.0.0/0
        except: [10.0.0.0/8, 100.64.0.0/10, 169.254.0.0/16, 172.16.0.0/12, 192.168.0.0/16]
    - ipBlock:
        cidr: ::/0
        except: ["fc00::/7", "fe80::/10"]
  {{- include "toolcrib.flow.ports" .Values.networkPolicy.outsidePorts | nindent 2 }}
{{- end -}}

{{/* The authority's certificates as a tlsConfig of a monitor; a Prometheus reads them from the chart's ConfigMap. */}}
{{- define "toolcrib.monitor.tls" -}}
scheme: https
tlsConfig:
  ca:
    configMap: {name: {{ include "toolcrib.caConfigMap" . }}, key: ca.crt}
  serverName: {{ include "toolcrib.registry.host" . }}
{{- end -}}

{{/* A rule file of the chart, with links to runbooks that lead somewhere: (list $ PATH). */}}
{{- define "toolcrib.rules" -}}
{{- $root := index . 0 -}}
{{- $root.Files.Get (index . 1) | replace "__RUNBOOK_BASE__" ($root.Values.monitoring.rules.runbookBase | trimSuffix "/") | trim -}}
{{- end -}}
