{{/* Values that contradict each other stop the rendering. The error lists all of them, each with what to do. */}}
{{- define "toolcrib.validate" -}}
{{- $v := .Values -}}
{{- $r := $v.registry -}}
{{- $w := $v.weaviate -}}
{{- $problems := list -}}
{{- if eq $v.profile "embedded" -}}
{{- if and (not (kindIs "invalid" $r.replicas)) (gt (int $r.replicas) 1) -}}
{{- $problems = append $problems (printf "registry.replicas is %d, but profile embedded has one replica, which keeps the index: leave it unset, or set profile=weaviate" (int $r.replicas)) -}}
{{- end -}}
{{- if $r.autoscaling.enabled -}}
{{- $problems = append $problems "registry.autoscaling.enabled needs replicas that share an index: set profile=weaviate, or switch it off" -}}
{{- end -}}
{{- if or (eq $w.mode "external") $w.external.host -}}
{{- $problems = append $problems "weaviate.external is not used with profile embedded: set profile=weaviate, or leave weaviate out" -}}
{{- end -}}
{{- else -}}
{{- if and (eq $w.mode "external") (not $w.external.host) -}}
{{- $problems = append $problems "weaviate.mode external needs weaviate.external.host: set it" -}}
{{- end -}}
{{- if and (eq $w.mode "bundled") $w.external.host -}}
{{- $problems = append $problems "weaviate.external.host is set, but weaviate.mode is bundled: set weaviate.mode=external, or clear the host" -}}
{{- end -}}
{{- if and (eq $w.mode "bundled") (gt (int $w.replicationFactor) 1) -}}
{{- $problems = append $problems "weaviate.replicationFactor above 1 needs a Weaviate of several nodes: set weaviate.mode=external" -}}
{{- end -}}
{{- if and (eq $w.mode "external") $w.external.caSecret.name (not $w.external.tls) -}}
{{- $problems = append $problems "weaviate.external.caSecret needs weaviate.external.tls=true" -}}
{{- end -}}
{{- if and $r.autoscaling.enabled (not (kindIs "invalid" $r.replicas)) -}}
{{- $problems = append $problems "registry.replicas and registry.autoscaling.enabled contradict each other: leave registry.replicas unset" -}}
{{- end -}}
{{- end -}}
{{- if and $r.autoscaling.enabled (gt (int $r.autoscaling.minReplicas) (int $r.autoscaling.maxReplicas)) -}}
{{- $problems = append $problems "registry.autoscaling.minReplicas is above maxReplicas: raise maxReplicas, or lower minReplicas" -}}
{{- end -}}
{{- if and $r.autoscaling.enabled (not $r.autoscaling.metrics) (not $r.autoscaling.targetCPUUtilizationPercentage) (not $r.autoscaling.targetMemoryUtilizationPercentage) -}}
{{- $problems = append $problems "registry.autoscaling has nothing to scale by: set targetCPUUtilizationPercentage, targetMemoryUtilizationPercentage or metrics" -}}
{{- end -}}
{{- if and $r.autoscaling.enabled $r.autoscaling.targetCPUUtilizationPercentage (not (dig "requests" "cpu" "" $r.resources)) -}}
{{- $problems = append $problems "registry.autoscaling.targetCPUUtilizationPercentage is a share of registry.resources.requests.cpu, which is not set: set it" -}}
{{- end -}}
{{- $grace := int $r.terminationGracePeriodSeconds -}}
{{- $least := add (int $r.drainSeconds) (int $r.finishSeconds) 5 -}}
{{- if lt $grace (int $least) -}}
{{- $problems = append $problems (printf "registry.terminationGracePeriodSeconds is %d, but drainSeconds + finishSeconds + 5 are %d: a pod would be killed while it drains; raise it" $grace $least) -}}
{{- end -}}
{{- range $component := list "operator" "registry" -}}
{{- $b := get $v $component -}}
{{- $pods := int $b.replicas -}}
{{- if eq $component "registry" -}}
{{- $pods = int (include "toolcrib.registry.replicas" $ | default $r.autoscaling.minReplicas) -}}
{{- end -}}
{{- if and $b.pdb.enabled (gt $pods 1) -}}
{{- if kindIs "invalid" $b.pdb.minAvailable -}}
{{- if has (toString $b.pdb.maxUnavailable) (list "<nil>" "" "0" "0%" "00%" "000%") -}}
{{- $problems = append $problems (printf "%s.pdb.maxUnavailable lets no pod be evicted, so no node could be drained: set at least 1, or pdb.enabled=false" $component) -}}
{{- end -}}
{{- else if not (contains "%" (toString $b.pdb.minAvailable)) -}}
{{- if ge (int $b.pdb.minAvailable) $pods -}}
{{- $problems = append $problems (printf "%s.pdb.minAvailable is %v of %d pods, so no node could be drained: use less, or maxUnavailable" $component $b.pdb.minAvailable $pods) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if eq $v.tls.mode "existing" -}}
{{- if not $v.tls.existing.registrySecret -}}
{{- $problems = append $problems "tls.mode existing needs tls.existing.registrySecret: a kubernetes.io/tls Secret" -}}
{{- end -}}
{{- if and (include "toolcrib.weaviate.bundled" .) (not $v.tls.existing.weaviateSecret) -}}
{{- $problems = append $problems "tls.mode existing with the bundled Weaviate needs tls.existing.weaviateSecret: a kubernetes.io/tls Secret" -}}
{{- end -}}
{{- if not (or $v.tls.ca.configMap $v.tls.ca.bundle) -}}
{{- $problems = append $problems "tls.mode existing needs the authority's certificates, so that the operator can verify the registry: set tls.ca.configMap or tls.ca.bundle" -}}
{{- end -}}
{{- end -}}
{{- if and $v.tls.ca.configMap $v.tls.ca.bundle -}}
{{- $problems = append $problems "tls.ca.configMap and tls.ca.bundle are both set: keep one" -}}
{{- end -}}
{{- if and (has $v.tls.mode (list "generate" "off")) (or $v.tls.ca.configMap $v.tls.ca.bundle) -}}
{{- $problems = append $problems (printf "tls.ca is for tls.mode existing and certManager, not for %s: clear tls.ca, or change tls.mode" $v.tls.mode) -}}
{{- end -}}
{{- if and $v.networkPolicy.tools (not $v.networkPolicy.enabled) -}}
{{- $problems = append $problems "networkPolicy.tools is set, but networkPolicy.enabled is false: enable it, or clear the list" -}}
{{- end -}}
{{- if and $v.tls.trustNamespaces (eq $v.tls.mode "off") -}}
{{- $problems = append $problems "tls.trustNamespaces is set, but tls.mode is off: there is nothing to trust; clear it, or switch TLS on" -}}
{{- end -}}
{{- if and $v.tls.trustNamespaces (has $v.tls.mode (list "certManager" "existing")) (not $v.tls.ca.bundle) -}}
{{- $problems = append $problems "tls.trustNamespaces needs the authority's certificates at template time: give tls.ca.bundle, or distribute them with trust-manager" -}}
{{- end -}}
{{- if and $v.monitoring.scrapeConfig.enabled (has $v.tls.mode (list "certManager" "existing")) (not $v.tls.ca.bundle) -}}
{{- $problems = append $problems "monitoring.scrapeConfig needs the authority's certificates at template time, so that Prometheus can verify the registry: set tls.ca.bundle (instead of tls.ca.configMap), or use serviceMonitor and podMonitor" -}}
{{- end -}}
{{- if and (eq $v.tls.mode "generate") (ge (int $v.tls.generate.renewBeforeDays) (int $v.tls.generate.certificateDays)) -}}
{{- $problems = append $problems "tls.generate.renewBeforeDays is not below certificateDays, so every upgrade would make new certificates: lower it" -}}
{{- end -}}
{{- if and (eq $v.tls.mode "generate") (ge (int $v.tls.generate.certificateDays) (int $v.tls.generate.caDays)) -}}
{{- $problems = append $problems "tls.generate.certificateDays is not below caDays, so certificates would outlive their authority: lower it" -}}
{{- end -}}
{{- if and $r.ingress.enabled (not $r.ingress.hosts) (not $r.publicHost) -}}
{{- $problems = append $problems "registry.ingress.enabled needs a host: registry.publicHost or registry.ingress.hosts" -}}
{{- end -}}
{{- if and $r.httpRoute.enabled (not $r.httpRoute.parentRefs) -}}
{{- $problems = append $problems "registry.httpRoute.enabled needs registry.httpRoute.parentRefs: the Gateways to attach to" -}}
{{- end -}}
{{- if and $r.httpRoute.enabled (not $r.httpRoute.hostnames) (not $r.publicHost) -}}
{{- $problems = append $problems "registry.httpRoute.enabled needs a host: registry.publicHost or registry.httpRoute.hostnames" -}}
{{- end -}}
{{- if and $r.service.nodePort (not (has $r.service.type (list "NodePort" "LoadBalancer"))) -}}
{{- $problems = append $problems "registry.service.nodePort needs registry.service.type NodePort or LoadBalancer" -}}
{{- end -}}
{{- if and (eq $r.embedder.kind "openai") (not (and $r.embedder.baseUrl $r.embedder.model $r.embedder.dimension)) -}}
{{- $problems = append $problems "registry.embedder.kind openai needs baseUrl, model and dimension" -}}
{{- end -}}
{{- if and (eq $r.embedder.kind "onnx") (not $r.embedder.path) -}}
{{- $problems = append $problems "registry.embedder.kind onnx needs path, a folder that registry.extraVolumeMounts mounts" -}}
{{- end -}}
{{- if and $v.crds.install (not $v.admission.install) (eq $v.operator.admission "policy") -}}
{{- $problems = append $problems "admission.install is false, but operator.admission is policy, so no new grant would take effect: set admission.install=true, or operator.admission=external (if you apply crds/ and its policies yourself, set crds.install=false too)" -}}
{{- end -}}
{{- $counters := $r.counters -}}
{{- if and (eq $counters.kind "redis") (not $counters.url) -}}
{{- $problems = append $problems "registry.counters.kind redis needs registry.counters.url: redis://HOST:PORT/DATABASE, or rediss:// over TLS" -}}
{{- end -}}
{{- if and (eq $counters.kind "memory") (or $counters.url $counters.username $counters.passwordSecret.name $counters.caSecret.name) -}}
{{- $problems = append $problems "registry.counters names a server, but registry.counters.kind is memory: set kind=redis, or remove the other fields" -}}
{{- end -}}
{{- if and $counters.username (not $counters.passwordSecret.name) -}}
{{- $problems = append $problems "registry.counters.username needs registry.counters.passwordSecret" -}}
{{- end -}}
{{- if and $counters.caSecret.name (not (hasPrefix "rediss://" $counters.url)) -}}
{{- $problems = append $problems "registry.counters.caSecret is for TLS: begin registry.counters.url with rediss://" -}}
{{- end -}}
{{- if eq $r.audience "toolcrib-admin" -}}
{{- $problems = append $problems "registry.audience is toolcrib-admin, the admin channel's own, so every agent could publish: use another" -}}
{{- end -}}
{{- $known := dict -}}
{{- $url := include "toolcrib.registry.publicUrl" . -}}
{{- range $i, $issuer := $v.issuers -}}
{{- if $issuer.cluster -}}
{{- $problems = append $problems (printf "issuers[%d].cluster: this cluster's issuer is already trusted: remove the entry, and see registry.clusterIssuer" $i) -}}
{{- end -}}
{{- if hasKey $known $issuer.issuer -}}
{{- $problems = append $problems (printf "issuers[%d].issuer %s is listed twice: keep one entry" $i $issuer.issuer) -}}
{{- end -}}
{{- $_ := set $known $issuer.issuer true -}}
{{- range $path := list "/mcp" "/mcp/direct" -}}
{{- if has (print $url $path) $issuer.audience -}}
{{- $problems = append $problems (printf "issuers[%d].audience contains %s%s: it is accepted on that path already, and would be accepted on all others; remove it" $i $url $path) -}}
{{- end -}}
{{- end -}}
{{- if has "toolcrib-admin" $issuer.audience -}}
{{- $problems = append $problems (printf "issuers[%d].audience contains toolcrib-admin, the admin channel's own: remove it" $i) -}}
{{- end -}}
{{- end -}}
{{- range $i, $server := $r.oauth.authorizationServers -}}
{{- if not (hasKey $known $server) -}}
{{- $problems = append $problems (printf "registry.oauth.authorizationServers[%d]: %s is not the issuer of an entry of issuers: add the entry, or remove it here" $i $server) -}}
{{- end -}}
{{- end -}}
{{- if and $v.runtimeRegistration.enabled (not $v.runtimeRegistration.namespace) -}}
{{- $problems = append $problems "runtimeRegistration.enabled needs runtimeRegistration.namespace" -}}
{{- end -}}
{{- if and $v.runtimeRegistration.enabled $v.runtimeRegistration.createNamespace (eq $v.runtimeRegistration.namespace .Release.Namespace) -}}
{{- $problems = append $problems "runtimeRegistration.namespace is the release's own: tools that agents register belong in another namespace" -}}
{{- end -}}
{{- if not (kindIs "invalid" $v.networkPolicy.monitoringNamespaces) -}}
{{- $problems = append $problems "networkPolicy.monitoringNamespaces was removed: set it to null, and name the namespaces that may scrape in metrics.from.namespaces" -}}
{{- end -}}
{{- if and $v.metrics.from.pods (not $v.metrics.from.namespaces) -}}
{{- $problems = append $problems "metrics.from.pods is set without namespaces, so nobody may scrape: set metrics.from.namespaces too" -}}
{{- end -}}
{{- $problems = concat $problems (include "toolcrib.validate.agents" . | fromJsonArray) -}}
{{- $address := dig "spec" "clusterIP" "" (lookup "v1" "Service" "default" "kubernetes" | default dict) -}}
{{- if and $address (not $v.egress.cluster) (not (regexMatch "^(10\\.|192\\.168\\.|172\\.(1[6-9]|2[0-9]|3[01])\\.|f[cd])" $address)) -}}
{{- $problems = append $problems (printf "Services of this cluster have public addresses such as %s, and the registry calls Services at private addresses only: set egress.cluster to the Service range and the pod range, e.g. {34.118.224.0/20,10.0.0.0/8} on GKE" $address) -}}
{{- end -}}
{{- $problems = concat $problems (include "toolcrib.validate.name" . | fromJsonArray) (include "toolcrib.validate.labels" . | fromJsonArray) -}}
{{- range include "toolcrib.secretKeys" (list "registry.config" $r.config) | fromJsonArray -}}
{{- $problems = append $problems (printf "%s: this would put a secret into a ConfigMap: use a Secret, as in weaviate.apiKey.existingSecret or registry.embedder.apiKeySecret" .) -}}
{{- end -}}
{{- range include "toolcrib.otherReleases" . | fromJsonArray -}}
{{- $problems = append $problems (printf "this cluster already has a Toolcrib, release %s. Install Toolcrib once per cluster: with two, one could confirm a revocation while the other still serves the grant. Uninstall that release first. If it is gone already, delete what it left: kubectl delete clusterrole %s" .release .role) -}}
{{- end -}}
{{- if not $problems -}}
{{- $problems = include "toolcrib.validate.env" . | fromJsonArray -}}
{{- end -}}
{{- with $problems -}}
{{- fail (printf "\n\nThese values contradict each other:\n  - %s\n" (join "\n  - " .)) -}}
{{- end -}}
{{- end -}}

{{/* Agents, and values of before they were objects of their own. */}}
{{- define "toolcrib.validate.agents" -}}
{{- $tls := .Values.tls -}}
{{- $problems := list -}}
{{- if and (kindIs "slice" .Values.agents) .Values.agents -}}
{{- $problems = append $problems "agents is a list: write its entries under agents.items, and what they say about pods (resources, nodeSelector, ...) once under agents.pod" -}}
{{- end -}}
{{- $pod := list "resources" "podLabels" "podAnnotations" "extraEnv" "podSecurityContext" "securityContext" "terminationGracePeriodSeconds" "nodeSelector" "affinity" "tolerations" "topologySpreadConstraints" "priorityClassName" "runtimeClassName" "hostAliases" "dnsConfig" -}}
{{- $names := dict -}}
{{- $namespaces := include "toolcrib.agentNamespaces" . | fromJsonArray -}}
{{- if and (include "toolcrib.agents.items" . | fromJsonArray) (not $namespaces) -}}
{{- $problems = append $problems (printf "agents.items needs agents.namespaces: name the namespaces in which the operator may run agents, e.g. {agents} after kubectl create namespace agents. It may read the Secrets there, so %s, where this release keeps its own keys, is a poor choice" .Release.Namespace) -}}
{{- end -}}
{{- range $i, $agent := include "toolcrib.agents.items" . | fromJsonArray -}}
{{- $at := printf "agents.items[%d]" $i -}}
{{- if hasKey $names $agent.name -}}
{{- $problems = append $problems (printf "%s.name %s is used twice: rename one" $at $agent.name) -}}
{{- end -}}
{{- $_ := set $names $agent.name true -}}
{{- if and $agent.namespace (not (has $agent.namespace $namespaces)) -}}
{{- $problems = append $problems (printf "%s.namespace %s is not one of agents.namespaces: add it there, or correct it" $at $agent.namespace) -}}
{{- end -}}
{{- if and $agent.task (not (dig "model" "url" "" $agent)) -}}
{{- $problems = append $problems (printf "%s (%s) has a task but no model: set model.url and model.name" $at $agent.name) -}}
{{- end -}}
{{- if and $agent.task (hasKey $agent "replicas") -}}
{{- $problems = append $problems (printf "%s (%s) has a task and replicas: a task is run once, by one pod; remove replicas" $at $agent.name) -}}
{{- end -}}
{{- if and (dig "model" "apiKeySecret" "name" "" $agent) (not (dig "model" "url" "" $agent)) -}}
{{- $problems = append $problems (printf "%s (%s) has a key but no model.url: set the endpoint that the key is for" $at $agent.name) -}}
{{- end -}}
{{- range $key, $_ := omit $agent "name" "namespace" "replicas" "task" "systemPrompt" "attempt" "mode" "core" "model" "serviceAccount" -}}
{{- if has $key $pod -}}
{{- $problems = append $problems (printf "%s.%s is set for all agents at once: move it to agents.pod.%s" $at $key $key) -}}
{{- else if eq $key "image" -}}
{{- $problems = append $problems (printf "%s.image is set for all agents at once: move it to agents.image" $at) -}}
{{- else -}}
{{- $problems = append $problems (printf "%s.%s was removed: the operator runs Toolcrib's own image in restricted pods. Run this agent as a workload of your own (docs/guides/install.md#an-agent-in-a-pod), or remove the field" $at $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if kindIs "map" .Values.agents -}}
{{- range .Values.agents.pod.extraEnv -}}
{{- if has .name (list "TOOLCRIB_URL" "TOOLCRIB_TOKEN_FILE" "TOOLCRIB_CA_FILE" "TOOLCRIB_METRICS_HOST" "TOOLCRIB_METRICS_PORT" "TOOLCRIB_MODE" "TOOLCRIB_CORE_TOOLS" "TOOLCRIB_TASK" "TOOLCRIB_REQUIRE_REGISTRY" "TOOLCRIB_SYSTEM_PROMPT" "TOOLCRIB_MODEL" "TOOLCRIB_MODEL_URL" "TOOLCRIB_MODEL_KEY_FILE") -}}
{{- $problems = append $problems (printf "agents.pod.extraEnv: %s would be set twice: remove it; the operator sets it" .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and (ne (include "toolcrib.agentNamespaces" .) "[]") (has $tls.mode (list "certManager" "existing")) (not $tls.ca.bundle) (not $tls.ca.configMap) -}}
{{- $problems = append $problems "agents need a ConfigMap with the authority's certificates in each of their namespaces: set tls.ca.bundle, or set tls.ca.configMap to one that is in all of them (trust-manager distributes it)" -}}
{{- end -}}
{{- $problems | toJson -}}
{{- end -}}

{{/* The name of a Service must begin with a letter. */}}
{{- define "toolcrib.validate.name" -}}
{{- $name := include "toolcrib.fullname" . -}}
{{- $problems := list -}}
{{- if not (regexMatch "^[a-z]" $name) -}}
{{- $problems = append $problems (printf "%s-registry is not a valid name for a Service, which must begin with a letter: set fullnameOverride, or rename the release" $name) -}}
{{- end -}}
{{- $problems | toJson -}}
{{- end -}}

{{/* Services, PodDisruptionBudgets, Helm and a second release select objects by these labels. */}}
{{- define "toolcrib.validate.labels" -}}
{{- $v := .Values -}}
{{- $own := list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" "app.kubernetes.io/part-of" "app.kubernetes.io/managed-by" "helm.sh/chart" "toolcrib.dev/agent" -}}
{{- $given := dict "commonLabels" $v.commonLabels "operator.podLabels" $v.operator.podLabels "registry.podLabels" $v.registry.podLabels "weaviate.podLabels" $v.weaviate.podLabels "registry.service.labels" $v.registry.service.labels "registry.ingress.labels" $v.registry.ingress.labels "registry.httpRoute.labels" $v.registry.httpRoute.labels "monitoring.serviceMonitor.labels" $v.monitoring.serviceMonitor.labels "monitoring.podMonitor.labels" $v.monitoring.podMonitor.labels "monitoring.rules.labels" $v.monitoring.rules.labels -}}
{{- if kindIs "map" $v.agents -}}
{{- $_ := set $given "agents.pod.podLabels" $v.agents.pod.podLabels -}}
{{- end -}}
{{- $problems := list -}}
{{- range $path, $labels := $given -}}
{{- range $key, $_ := $labels -}}
{{- if has $key $own -}}
{{- $problems = append $problems (printf "%s: %s is the chart's own label: leave it out, or use a key of yours" $path $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $problems | toJson -}}
{{- end -}}

{{/* The paths of values that look like secrets, at any depth: (list PATH VALUE). Names of files and Services do not count. */}}
{{- define "toolcrib.secretKeys" -}}
{{- $path := index . 0 -}}
{{- $value := index . 1 -}}
{{- $found := list -}}
{{- if kindIs "map" $value -}}
{{- range $key, $below := $value -}}
{{- $at := printf "%s.%s" $path $key -}}
{{- if regexMatch "(?i)^([^/]*[-_])?(api[-_]?key|[^/]*(secret|password|token))$" $key -}}
{{- $found = append $found $at -}}
{{- else -}}
{{- $found = concat $found (include "toolcrib.secretKeys" (list $at $below) | fromJsonArray) -}}
{{- end -}}
{{- end -}}
{{- else if kindIs "slice" $value -}}
{{- range $i, $below := $value -}}
{{- $found = concat $found (include "toolcrib.secretKeys" (list (printf "%s[%d]" $path $i) $below) | fromJsonArray) -}}
{{- end -}}
{{- end -}}
{{- $found | toJson -}}
{{- end -}}

{{/*
Other releases in this cluster, found by the operator's ClusterRole: `{release, role}` each. Operators share one
finalizer and one set of kinds, so each would treat the other's bindings as its own. With rbac.create: false the
installer may not be allowed to list ClusterRoles, so nothing is asked.
*/}}
{{- define "toolcrib.otherReleases" -}}
{{- $found := list -}}
{{- if .Values.rbac.create -}}
{{- $own := printf "%s/%s" .Release.Namespace .Release.Name -}}
{{- $name := printf "%s-operator" (include "toolcrib.fullname" .) -}}
{{- range dig "items" list (lookup "rbac.authorization.k8s.io/v1" "ClusterRole" "" "" | default dict) -}}
{{- $labels := .metadata.labels | default dict -}}
{{- if and (eq (get $labels "app.kubernetes.io/part-of") "toolcrib") (eq (get $labels "app.kubernetes.io/component") "operator") -}}
{{- $notes := .metadata.annotations | default dict -}}
{{- $release := printf "%s/%s" (get $notes "meta.helm.sh/release-namespace") (get $notes "meta.helm.sh/release-name") -}}
{{- if eq $release "/" -}}
{{- $release = ternary $own (printf "%s (not Helm's)" (get $labels "app.kubernetes.io/instance")) (eq .metadata.name $name) -}}
{{- end -}}
{{- if ne $release $own -}}
{{- $found = append $found (dict "release" $release "role" .metadata.name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $found | toJson -}}
{{- end -}}

{{/* Variables that a container would have twice. The API server would refuse them in the middle of an upgrade. */}}
{{- define "toolcrib.validate.env" -}}
{{- $problems := list -}}
{{- range $path, $file := dict "operator" "operator/deployment.yaml" "registry" "registry/workload.yaml" "weaviate" "weaviate/weaviate.yaml" -}}
{{- $given := get $.Values $path | default dict -}}
{{- if $given.extraEnv -}}
{{- range regexSplit "(?m)^---$" (include (print $.Template.BasePath "/" $file) $) -1 -}}
{{- $object := fromYaml . -}}
{{- if has (get $object "kind") (list "Deployment" "StatefulSet") -}}
{{- $seen := dict -}}
{{- range (first $object.spec.template.spec.containers).env -}}
{{- if hasKey $seen .name -}}
{{- $problems = append $problems (printf "%s.extraEnv: %s would be set twice: remove it; the chart or another entry sets it" $path .name) -}}
{{- end -}}
{{- $_ := set $seen .name true -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $problems | toJson -}}
{{- end -}}
