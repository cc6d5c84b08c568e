{{/*
Certificates of mode `generate`: made once and kept by `lookup`. They are made once in a rendering, however many templates
ask: kept in .Values under a name that the schema forbids to users. A serving certificate is replaced if its names or its
authority changed, or if it ends within tls.generate.renewBeforeDays.
*/}}
{{- define "toolcrib.certificates" -}}
{{- if not (hasKey .Values "_certificates") -}}
{{- $g := .Values.tls.generate -}}
{{- $now := now | unixEpoch | int64 -}}
{{- $name := printf "%s-ca" (include "toolcrib.fullname" .) -}}
{{- $found := lookup "v1" "Secret" .Release.Namespace $name | default dict -}}
{{- $notes := dig "metadata" "annotations" dict $found -}}
{{- $data := $found.data | default dict -}}
{{- $rotate := ternary "" (toString $g.rotate) (kindIs "invalid" $g.rotate) -}}
{{- $authority := dict "rotate" $rotate -}}
{{- $lasts := get $notes "toolcrib.dev/not-after" | default "0" | int64 -}}
{{- $kept := false -}}
{{- if and (get $data "tls.crt") (get $data "tls.key") -}}
{{- $kept = and (eq (get $notes "toolcrib.dev/rotate" | default "") $rotate) (gt $lasts (add $now (mul 86400 (int64 $g.certificateDays)))) -}}
{{- end -}}
{{- if $kept -}}
{{- $_ := set $authority "cert" (get $data "tls.crt" | b64dec) -}}
{{- $_ := set $authority "key" (get $data "tls.key" | b64dec) -}}
{{- $_ := set $authority "previous" (get $data "previous.crt" | default "" | b64dec) -}}
{{- $_ := set $authority "notAfter" $lasts -}}
{{- else -}}
{{- $new := genCAWithKey (printf "%s %s" $name (now | date "2006-01-02 15:04:05")) (int $g.caDays) (genPrivateKey "ecdsa") -}}
{{- $_ := set $authority "cert" $new.Cert -}}
{{- $_ := set $authority "key" $new.Key -}}
{{- $_ := set $authority "previous" (get $data "tls.crt" | default "" | b64dec) -}}
{{- $_ := set $authority "notAfter" (add $now (mul 86400 (int64 $g.caDays))) -}}
{{- end -}}
{{- $_ := set $authority "bundle" (printf "%s%s" $authority.cert $authority.previous) -}}
{{- $all := dict "authority" $authority -}}
{{- $serving := dict "registry" (include "toolcrib.registry.names" . | fromJsonArray) -}}
{{- if include "toolcrib.weaviate.bundled" . -}}
{{- $_ := set $serving "weaviate" (include "toolcrib.weaviate.names" . | fromJsonArray) -}}
{{- end -}}
{{- range $component, $names := $serving -}}
{{- $secret := printf "%s-%s-tls" (include "toolcrib.fullname" $) $component -}}
{{- $found := lookup "v1" "Secret" $.Release.Namespace $secret | default dict -}}
{{- $notes := dig "metadata" "annotations" dict $found -}}
{{- $data := $found.data | default dict -}}
{{- $for := include "toolcrib.hash" (list $names $authority.cert) -}}
{{- $lasts := get $notes "toolcrib.dev/not-after" | default "0" | int64 -}}
{{- $fresh := gt (sub $lasts (mul 86400 (int64 $g.renewBeforeDays))) $now -}}
{{- $own := dict "for" $for -}}
{{- if and $fresh (get $data "tls.crt") (get $data "tls.key") (eq (get $notes "toolcrib.dev/certificate-for" | default "") $for) -}}
{{- $_ := set $own "cert" (get $data "tls.crt" | b64dec) -}}
{{- $_ := set $own "key" (get $data "tls.key" | b64dec) -}}
{{- $_ := set $own "notAfter" $lasts -}}
{{- else -}}
{{- $addresses := list -}}
{{- $hosts := list -}}
{{- range $names -}}
{{- if regexMatch "^[0-9.]+$|:" . -}}{{- $addresses = append $addresses . -}}{{- else -}}{{- $hosts = append $hosts . -}}{{- end -}}
{{- end -}}
{{- $ca := buildCustomCert ($authority.cert | b64enc) ($authority.key | b64enc) -}}
{{- $new := genSignedCertWithKey (first $names | trunc 64) $addresses $hosts (int $g.certificateDays) $ca (genPrivateKey "ecdsa") -}}
{{- $_ := set $own "cert" $new.Cert -}}
{{- $_ := set $own "key" $new.Key -}}
{{- $_ := set $own "notAfter" (add $now (mul 86400 (int64 $g.certificateDays))) -}}
{{- end -}}
{{- $_ := set $all $component $own -}}
{{- end -}}
{{- $_ := set .Values "_certificates" $all -}}
{{- end -}}
{{- end -}}

{{/* Every name under which a Service is called in the cluster: (list $ "service"). */}}
{{- define "toolcrib.serviceNames" -}}
{{- $root := index . 0 -}}
{{- $base := printf "%s-%s" (include "toolcrib.fullname" $root) (index . 1) -}}
{{- $namespaced := printf "%s.%s" $base $root.Release.Namespace -}}
{{- list (printf "%s.svc" $namespaced) $base $namespaced (printf "%s.svc.%s" $namespaced $root.Values.clusterDomain) | toJson -}}
{{- end -}}

{{/* What agents may call the registry by: its allowed hosts. */}}
{{- define "toolcrib.registry.hosts" -}}
{{- $r := .Values.registry -}}
{{- $names := include "toolcrib.serviceNames" (list . "registry") | fromJsonArray -}}
{{- $names = append $names (include "toolcrib.registry.publicHost" .) -}}
{{- if $r.ingress.enabled -}}{{- $names = concat $names ($r.ingress.hosts | default list) -}}{{- end -}}
{{- if $r.httpRoute.enabled -}}{{- $names = concat $names ($r.httpRoute.hostnames | default list) -}}{{- end -}}
{{- concat $names (list "localhost" "127.0.0.1") | uniq | toJson -}}
{{- end -}}

{{/* What the registry's certificate has to be valid for: the operator calls the admin Service by its name. */}}
{{- define "toolcrib.registry.names" -}}
{{- $names := include "toolcrib.registry.hosts" . | fromJsonArray -}}
{{- $names = concat $names (include "toolcrib.serviceNames" (list . "registry-admin") | fromJsonArray) -}}
{{- concat $names (.Values.tls.extraNames | default list) | uniq | toJson -}}
{{- end -}}

{{- define "toolcrib.weaviate.names" -}}
{{- concat (include "toolcrib.serviceNames" (list . "weaviate") | fromJsonArray) (list "localhost" "127.0.0.1") | toJson -}}
{{- end -}}

{{/* The Secret with a component's certificate: (list $ "registry"). */}}
{{- define "toolcrib.tlsSecret" -}}
{{- $root := index . 0 -}}
{{- if eq $root.Values.tls.mode "existing" -}}
{{- get $root.Values.tls.existing (printf "%sSecret" (index . 1)) -}}
{{- else -}}
{{- include "toolcrib.fullname" $root }}-{{ index . 1 }}-tls
{{- end -}}
{{- end -}}

{{/* The authority's certificates as PEM, where the chart knows them; else nothing. */}}
{{- define "toolcrib.caBundle" -}}
{{- if eq .Values.tls.mode "generate" -}}
{{- include "toolcrib.certificates" . -}}
{{- .Values._certificates.authority.bundle -}}
{{- else if ne .Values.tls.mode "off" -}}
{{- .Values.tls.ca.bundle | default "" -}}
{{- end -}}
{{- end -}}

{{/* A source of a projected volume that puts `ca.crt` there: (list $ "registry"), for what verifies that component. */}}
{{- define "toolcrib.caSource" -}}
{{- $root := index . 0 -}}
{{- $ca := $root.Values.tls.ca -}}
{{- if $ca.configMap -}}
configMap: {name: {{ $ca.configMap | quote }}, items: [{key: ca.crt, path: ca.crt}]}
{{- else if or $ca.bundle (eq $root.Values.tls.mode "generate") -}}
configMap: {name: {{ include "toolcrib.fullname" $root }}-ca, items: [{key: ca.crt, path: ca.crt}]}
{{- else -}}
secret: {name: {{ include "toolcrib.tlsSecret" . | quote }}, items: [{key: ca.crt, path: ca.crt}]}
{{- end -}}
{{- end -}}
