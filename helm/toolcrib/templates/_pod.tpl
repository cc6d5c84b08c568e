{{/*
What every pod has in the same way. `toolcrib.pod` is called with
  (dict "root" $ "values" .Values.registry "component" "registry" "account" NAME "token" false "spread" true)
and gives the fields of a pod's spec besides containers and volumes; `toolcrib.container` gives the fields of its main
container besides name, command, args, ports, probes, env and volumeMounts.
*/}}
{{- define "toolcrib.pod" -}}
{{- $root := .root -}}
{{- $v := .values -}}
serviceAccountName: {{ .account | quote }}
automountServiceAccountToken: {{ .token }}
# A Service named like us would otherwise become variables such as TOOLCRIB_REGISTRY_PORT, which read as settings.
enableServiceLinks: false
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- $restricted := dict "runAsNonRoot" true "runAsUser" 65532 "runAsGroup" 65532 "fsGroup" 65532 "fsGroupChangePolicy" "OnRootMismatch" "seccompProfile" (dict "type" "RuntimeDefault") }}
  {{- $context := mergeOverwrite $restricted (deepCopy ($v.podSecurityContext | default dict)) }}
  {{- range $field, $value := $context }}
  {{- if kindIs "invalid" $value }}{{ $_ := unset $context $field }}{{ end }}
  {{- end }}
  {{- toYaml $context | nindent 2 }}
{{- with $v.terminationGracePeriodSeconds }}
terminationGracePeriodSeconds: {{ int . }}
{{- end }}
{{- with $v.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $v.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $v.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if not (kindIs "invalid" $v.topologySpreadConstraints) }}
{{- with $v.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- else if .spread }}
topologySpreadConstraints:
  {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "toolcrib.selectorLabels" (list $root $.component) | nindent 8 }}
    matchLabelKeys: [pod-template-hash]
  {{- end }}
{{- end }}
{{- with $v.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with $v.runtimeClassName }}
runtimeClassName: {{ . | quote }}
{{- end }}
{{- with $v.hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $v.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $v.initContainers }}
initContainers:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "toolcrib.containerSecurity" -}}
securityContext:
  {{- $restricted := dict "allowPrivilegeEscalation" false "readOnlyRootFilesystem" true "capabilities" (dict "drop" (list "ALL")) }}
  {{- toYaml (mergeOverwrite $restricted (deepCopy (.securityContext | default dict))) | nindent 2 }}
{{- end -}}

{{- define "toolcrib.container" -}}
{{- $v := .values -}}
image: {{ include "toolcrib.image" (list .root $v.image) | quote }}
imagePullPolicy: {{ include "toolcrib.pullPolicy" (list .root $v.image) }}
{{ include "toolcrib.containerSecurity" $v }}
{{- with $v.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $v.extraEnvFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Labels and annotations of a pod: (dict "root" $ "values" … "component" … "annotations" (dict) "port" 8090 "scheme" "http"). */}}
{{- define "toolcrib.podMetadata" -}}
{{- $scrape := dict -}}
{{- if and .port .root.Values.monitoring.scrapeAnnotations -}}
{{- $scrape = dict "prometheus.io/scrape" "true" "prometheus.io/port" (toString .port) "prometheus.io/path" "/metrics" "prometheus.io/scheme" .scheme -}}
{{- end -}}
labels:
  {{- include "toolcrib.selectorLabels" (list .root .component) | nindent 2 }}
  app.kubernetes.io/part-of: toolcrib
  {{- with .root.Values.commonLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- range $key, $value := .extraLabels }}
  {{ $key }}: {{ $value | quote }}
  {{- end }}
  {{- with .values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (.values.podAnnotations | default dict) (.annotations | default dict) $scrape }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* volumeClaimTemplates of a StatefulSet and what becomes of the claims: (list $ "component" "volume" .Values.x.persistence). */}}
{{- define "toolcrib.claims" -}}
{{- $p := index . 3 -}}
persistentVolumeClaimRetentionPolicy: {whenDeleted: {{ $p.whenDeleted }}, whenScaled: Retain}
volumeClaimTemplates:
  - apiVersion: v1
    kind: PersistentVolumeClaim
    metadata:
      name: {{ index . 2 | quote }}
      # Not the chart's version: a StatefulSet's templates cannot change.
      labels:
        {{- include "toolcrib.selectorLabels" (list (index . 0) (index . 1)) | nindent 8 }}
      {{- with $p.annotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      accessModes:
        {{- toYaml $p.accessModes | nindent 8 }}
      {{- with $p.storageClass }}
      storageClassName: {{ . | quote }}
      {{- end }}
      resources:
        requests: {storage: {{ $p.size | quote }}}
{{- end -}}
