{{/* Values that contradict each other stop the rendering, all named at once, each with what to do. */}}
{{- define "toolcrib.validate" -}}
{{- $v := .Values -}}
{{- $r := $v.registry -}}
{{- $w := $v.weaviate -}}
{{- $problems := list -}}
{{- if eq $v.profile "embedded" -}}
{{- if and (not (kindIs "invalid" $r.replicas)) (gt (int $r.replicas) 1) -}}
{{- $problems = append $problems (printf "registry.replicas is %d, but profile embedded keeps the index in the one replica: leave it unset, or set profile=weaviate" (int $r.replicas)) -}}
{{- end -}}
{{- if $r.autoscaling.enabled -}}
{{- $problems = append $problems "registry.autoscaling.enabled needs replicas that share an index: set profile=weaviate, or switch it off" -}}
{{- end -}}
{{- if or (eq $w.mode "external") $w.external.host -}}
{{- $problems = append $problems "weaviate.external is not used with profile embedded: set profile=weaviate, or leave weaviate out" -}}
{{- end -}}
{{- else -}}
{{- if and (eq $w.mode "external") (not $w.external.host) -}}
{{- $problems = append $problems "weaviate.mode external needs weaviate.external.host" -}}
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
{{- $problems = append $problems "registry.autoscaling.minReplicas is above maxReplicas" -}}
{{- end -}}
{{- if and $r.autoscaling.enabled (not $r.autoscaling.metrics) (not $r.autoscaling.targetCPUUtilizationPercentage) (not $r.autoscaling.targetMemoryUtilizationPercentage) -}}
{{- $problems = append $problems "registry.autoscaling has nothing to scale by: set targetCPUUtilizationPercentage, targetMemoryUtilizationPercentage or metrics" -}}
{{- end -}}
{{- if and $r.autoscaling.enabled $r.autoscaling.targetCPUUtilizationPercentage (not (dig "requests" "cpu" "" $r.resources)) -}}
{{- $problems = append $problems "registry.autoscaling.targetCPUUtilizationPercentage is a share of registry.resources.requests.cpu, which is not set" -}}
{{- end -}}
{{- $grace := int $r.terminationGracePeriodSeconds -}}
{{- $least := add (int $r.drainSeconds) (int $r.finishSeconds) 5 -}}
{{- if lt $grace (int $least) -}}
{{- $problems = append $problems (printf "registry.terminationGracePeriodSeconds is %d, but drainSeconds + finishSeconds + 5 are %d: a pod would be killed while it drains" $grace $least) -}}
{{- end -}}
{{- range $component := list "operator" "registry" -}}
{{- $b := get $v $component -}}
{{- if and $b.pdb.enabled (not (kindIs "invalid" $b.pdb.minAvailable)) (not (contains "%" (toString $b.pdb.minAvailable))) -}}
{{- $pods := int (ternary $r.autoscaling.minReplicas ($b.replicas | default 2) (and (eq $component "registry") $r.autoscaling.enabled)) -}}
{{- if and (gt $pods 1) (ge (int $b.pdb.minAvailable) $pods) -}}
{{- $problems = append $problems (printf "%s.pdb.minAvailable is %v of %d pods: no node could ever be drained; use less, or maxUnavailable" $component $b.pdb.minAvailable $pods) -}}
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
{{- $problems = append $problems "tls.mode existing needs the authority's certificates, for the operator to verify the registry: tls.ca.configMap or tls.ca.bundle" -}}
{{- end -}}
{{- end -}}
{{- if and $v.tls.ca.configMap $v.tls.ca.bundle -}}
{{- $problems = append $problems "tls.ca.configMap and tls.ca.bundle are both set: keep one" -}}
{{- end -}}
{{- if and (has $v.tls.mode (list "generate" "off")) (or $v.tls.ca.configMap $v.tls.ca.bundle) -}}
{{- $problems = append $problems (printf "tls.ca is for tls.mode existing and certManager, not for %s" $v.tls.mode) -}}
{{- end -}}
{{- if and $v.tls.trustNamespaces (eq $v.tls.mode "off") -}}
{{- $problems = append $problems "tls.trustNamespaces is set, but tls.mode is off: there is nothing to trust" -}}
{{- end -}}
{{- if and $v.tls.trustNamespaces (has $v.tls.mode (list "certManager" "existing")) (not $v.tls.ca.bundle) -}}
{{- $problems = append $problems "tls.trustNamespaces needs the authority's certificates at template time: give tls.ca.bundle, or distribute them with trust-manager" -}}
{{- end -}}
{{- if and (eq $v.tls.mode "generate") (ge (int $v.tls.generate.renewBeforeDays) (int $v.tls.generate.certificateDays)) -}}
{{- $problems = append $problems "tls.generate.renewBeforeDays is not below certificateDays: every upgrade would make new certificates" -}}
{{- end -}}
{{- if and (eq $v.tls.mode "generate") (ge (int $v.tls.generate.certificateDays) (int $v.tls.generate.caDays)) -}}
{{- $problems = append $problems "tls.generate.certificateDays is not below caDays: certificates would outlive their authority" -}}
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
{{- if eq $r.audience "toolcrib-admin" -}}
{{- $problems = append $problems "registry.audience is the admin channel's own: every agent could publish; use another" -}}
{{- end -}}
{{- $known := dict -}}
{{- range $i, $issuer := $v.issuers -}}
{{- if $issuer.cluster -}}
{{- $problems = append $problems (printf "issuers[%d].cluster: this cluster's issuer is there already; see registry.clusterIssuer" $i) -}}
{{- end -}}
{{- if hasKey $known $issuer.issuer -}}
{{- $problems = append $problems (printf "issuers[%d].issuer %s is there twice" $i $issuer.issuer) -}}
{{- end -}}
{{- $_ := set $known $issuer.issuer true -}}
{{- if has "toolcrib-admin" $issuer.audience -}}
{{- $problems = append $problems (printf "issuers[%d].audience contains toolcrib-admin, the admin channel's own" $i) -}}
{{- end -}}
{{- end -}}
{{- if and $v.runtimeRegistration.enabled (not $v.runtimeRegistration.namespace) -}}
{{- $problems = append $problems "runtimeRegistration.enabled needs runtimeRegistration.namespace" -}}
{{- end -}}
{{- if and $v.runtimeRegistration.enabled $v.runtimeRegistration.createNamespace (eq $v.runtimeRegistration.namespace .Release.Namespace) -}}
{{- $problems = append $problems "runtimeRegistration.namespace is the release's own: tools that agents register belong in another" -}}
{{- end -}}
{{- $names := dict -}}
{{- range $i, $agent := $v.agents -}}
{{- if hasKey $names $agent.name -}}
{{- $problems = append $problems (printf "agents[%d].name %s is there twice" $i $agent.name) -}}
{{- end -}}
{{- $_ := set $names $agent.name true -}}
{{- if and $agent.task (not (dig "model" "url" "" $agent)) -}}
{{- $problems = append $problems (printf "agents[%d] (%s) has a task but no model: set model.url and model.name" $i $agent.name) -}}
{{- end -}}
{{- end -}}
{{- $address := dig "spec" "clusterIP" "" (lookup "v1" "Service" "default" "kubernetes" | default dict) -}}
{{- if and $address (not $v.egress.cluster) (not (regexMatch "^(10\\.|192\\.168\\.|172\\.(1[6-9]|2[0-9]|3[01])\\.|f[cd])" $address)) -}}
{{- $problems = append $problems (printf "the Services of this cluster have addresses such as %s, outside of private networks, and the registry would take none for a Service: set egress.cluster to the Service range and the pod range, e.g. {34.118.224.0/20,10.0.0.0/8} on GKE" $address) -}}
{{- end -}}
{{- with $problems -}}
{{- fail (printf "\n\nThese values contradict each other:\n  - %s\n" (join "\n  - " .)) -}}
{{- end -}}
{{- end -}}
