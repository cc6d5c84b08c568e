"""The sets of values that the chart's tests render: every switch is on in one of them and off in another."""

from typing import Any

Values = dict[str, Any]

_MODEL = {"name": "gpt-5-mini", "url": "https://models.example.com/v1"}
_AGENTS: list[Values] = [
    {
        "name": "safecracker",
        "task": "How long does it take?",
        "model": _MODEL | {"apiKeySecret": {"name": "model-key", "key": "api-key"}},
    },
    {
        "name": "reader",
        "systemPrompt": "Read.",
        "mode": "hybrid",
        "core": ["heist/file-reader"],
        "replicas": 2,
        "model": _MODEL,
    },
]
_ISSUERS = [
    {
        "issuer": "https://login.example.com/realms/agents",
        "audience": ["https://toolcrib.example.com"],
        "scopes": "intersection",
    }
]
_HOST = "toolcrib.example.com"
_EXTERNAL = {
    "mode": "external",
    "external": {"host": "weaviate.search.svc", "caSecret": {"name": "weaviate-ca"}},
    "apiKey": {"existingSecret": "weaviate-key"},
    "replicationFactor": 3,
}
_COUNTERS = {
    "kind": "redis",
    "url": "rediss://redis.limits.svc:6380/3",
    "username": "toolcrib",
    "passwordSecret": {"name": "redis-password"},
    "caSecret": {"name": "redis-ca"},
}
_AUDIT = {
    "destination": "file",
    "mode": "strict",
    "arguments": "omit",
    "volume": {"existingClaim": "audit"},
    "key": {"existingSecret": "audit-secret", "key": "chain"},
}
_INGRESS = {
    "enabled": True,
    "className": "nginx",
    "tls": [{"secretName": "toolcrib-example-com", "hosts": [_HOST]}],
}
_ROUTE = {"enabled": True, "parentRefs": [{"name": "public", "namespace": "gateways"}]}

# What may be set for each component; the values are told apart by the component's name.
COMPONENTS = ("operator", "registry", "weaviate")


def extras(component: str) -> Values:
    """One of everything that people add to a component's pods, each recognisable by the component's name."""
    return {
        "extraEnv": [{"name": "EXTRA", "value": f"env-{component}"}],
        "extraEnvFrom": [{"configMapRef": {"name": f"envfrom-{component}"}}],
        "extraVolumes": [{"name": "extra", "configMap": {"name": f"volume-{component}"}}],
        "extraVolumeMounts": [{"name": "extra", "mountPath": f"/extra/{component}"}],
        "extraArgs": [f"--extra={component}"],
        "initContainers": [{"name": f"init-{component}", "image": "example.com/init:1"}],
        "extraContainers": [{"name": f"beside-{component}", "image": "example.com/beside:1"}],
        "podLabels": {"example.com/label": component},
        "podAnnotations": {"example.com/annotation": component},
        "nodeSelector": {"example.com/node": component},
        "tolerations": [{"key": f"for-{component}", "operator": "Exists"}],
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _node_terms(component)}
        },
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": f"example.com/{component}",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"example.com/label": component}},
            }
        ],
        "priorityClassName": f"priority-{component}",
        "runtimeClassName": f"runtime-{component}",
        "hostAliases": [{"ip": "192.0.2.1", "hostnames": [f"alias-{component}"]}],
        "dnsConfig": {"searches": [f"{component}.example.com"]},
        "serviceAccount": {"annotations": {"example.com/role": component}},
    }


def agent_pod() -> Values:
    """One of everything that people set for the pods of Agents, named as in `extras`."""
    given = extras("agent")
    others = ("extraEnvFrom", "extraVolumes", "extraVolumeMounts", "extraArgs", "initContainers", "extraContainers",
              "serviceAccount")  # fmt: skip
    return {key: value for key, value in given.items() if key not in others}


def _node_terms(component: str) -> Values:
    expression = {"key": "example.com/pool", "operator": "In", "values": [component]}
    return {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}


MATRIX: dict[str, Values] = {
    "default": {},
    "embedded": {"profile": "embedded", "registry": {"audit": {"destination": "file"}}},
    "embedded-without-volume": {
        "profile": "embedded",
        "registry": {"persistence": {"enabled": False}, "audit": {"destination": "file", "keep": 3}},
    },
    "external-weaviate": {
        "weaviate": _EXTERNAL,
        "registry": {"counters": _COUNTERS, "audit": _AUDIT},
    },
    "weaviate-own-claim": {
        "weaviate": {"persistence": {"existingClaim": "old"}, "apiKey": {"existingSecret": "key"}}
    },
    "weaviate-without-volume": {"weaviate": {"persistence": {"enabled": False}}},
    "no-tls": {"tls": {"mode": "off"}},
    "cert-manager": {"tls": {"mode": "certManager"}},
    "cert-manager-issuer": {
        "tls": {
            "mode": "certManager",
            "certManager": {"issuerRef": {"name": "private", "kind": "ClusterIssuer"}},
            "extraNames": ["toolcrib.corp", "192.0.2.7"],
        }
    },
    "existing-tls": {
        "tls": {
            "mode": "existing",
            "existing": {"registrySecret": "registry-cert", "weaviateSecret": "weaviate-cert"},
            "ca": {"configMap": "corp-ca"},
        }
    },
    "agents": {
        "agents": {
            "items": [_AGENTS[0], _AGENTS[1] | {"namespace": "team-c"}],
            "namespaces": ["team-b", "team-c"],
        },
        "tls": {"trustNamespaces": ["team-a"]},
    },
    "ingress": {
        "registry": {
            "publicHost": _HOST,
            "publicPort": 443,
            "ingress": _INGRESS,
            "discovery": {"stepUp": True},
            "oauth": {
                "authorizationServers": ["https://login.example.com/realms/agents"],
                "scopesSupported": ["calculator:use"],
            },
        },
        "issuers": _ISSUERS,
        "egress": {"allow": ["api.example.com"], "cluster": ["10.96.0.0/12", "10.244.0.0/16"]},
    },
    "gateway": {"registry": {"publicHost": _HOST, "httpRoute": _ROUTE}},
    "autoscaled": {
        "registry": {
            "autoscaling": {"enabled": True, "targetMemoryUtilizationPercentage": 80, "maxReplicas": 9},
            "pdb": {"minAvailable": "50%"},
        }
    },
    "single": {"operator": {"replicas": 1}, "registry": {"replicas": 1}},
    "prometheus-operator": {
        "agents": {"items": _AGENTS, "namespaces": ["team-b"]},
        "monitoring": {
            "scrapeAnnotations": False,
            "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
            "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
            "rules": {
                "enabled": True,
                "labels": {"release": "prometheus"},
                "runbookBase": "https://example.com/x",
            },
            "dashboards": {"enabled": True, "namespace": "grafana"},
        },
    },
    "prometheus": {
        "monitoring": {
            "rules": {"enabled": True, "kind": "ConfigMap"},
            "dashboards": {"enabled": True},
            "scrapeConfig": {"enabled": True},
        },
    },
    "prometheus-asks-kubernetes": {
        "agents": {"items": _AGENTS, "namespaces": ["team-b"]},
        "monitoring": {
            "scrapeConfig": {
                "enabled": True,
                "namespace": "monitoring",
                "discovery": "kubernetes",
                "serviceAccount": {"name": "prometheus"},
            }
        },
    },
    "registrations": {
        "runtimeRegistration": {"enabled": True},
        "credentials": {"namespaces": ["team-a", "team-b"]},
        "operator": {"trustedNamespaceLabels": ["example.com/team"]},
    },
    "bare": {
        "crds": {"install": False},
        "admission": {"install": False},
        "rbac": {"create": False, "aggregate": False},
        "networkPolicy": {"enabled": False},
        "helmTest": {"enabled": False},
        "monitoring": {"scrapeAnnotations": False},
        "operator": {"pdb": {"enabled": False}, "serviceAccount": {"create": False, "name": "own-operator"}},
        "registry": {
            "pdb": {"enabled": False},
            "audit": {"enabled": False},
            "serviceAccount": {"create": False, "name": "own-registry"},
        },
    },
    "narrow-network": {
        "agents": {"items": _AGENTS, "namespaces": ["team-b"]},
        "metrics": {
            "from": {"namespaces": ["monitoring"], "pods": {"app.kubernetes.io/name": "prometheus"}},
            "reasons": "full",
        },
        "networkPolicy": {
            "agentNamespaces": {"matchLabels": {"agents": "yes"}},
            "apiServerCIDRs": ["192.0.2.10/32"],
            "toolEgress": [],
            "tools": [
                {
                    "namespace": "heist",
                    "podSelector": {"matchLabels": {"app.kubernetes.io/name": "example-tools"}},
                    "ports": [8080, 8443],
                },
                {"namespace": "team-a", "podSelector": {}, "ports": [80]},
            ],
            "modelEgress": [{"namespaceSelector": {"matchLabels": {"models": "yes"}}}],
            "modelPorts": [8000],
            "extraIngress": [
                {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}
            ],
            "extraEgress": [
                {"to": [{"namespaceSelector": {}}], "ports": [{"protocol": "TCP", "port": 4318}]}
            ],
        },
    },
    # Names that YAML would take for numbers, booleans, nothing or a mapping.
    "numbers": {
        "nameOverride": "true",
        "fullnameOverride": "toolcrib",
        "agents": {
            "items": [_AGENTS[0] | {"name": name} for name in ("1", "1e3", "true", "null")],
            "namespaces": ["123"],
        },
        "credentials": {"namespaces": ["123", "1e3"]},
        "runtimeRegistration": {"enabled": True, "namespace": "456"},
        "tls": {"trustNamespaces": ["123"]},
        "operator": {
            "trustedNamespaceLabels": ["a: b"],
            "serviceAccount": {"name": "123"},
            "priorityClassName": "1",
            "runtimeClassName": "2",
        },
        "registry": {
            "audience": "1, }",
            "audit": {
                "destination": "file",
                "volume": {"existingClaim": "14"},
                "key": {"existingSecret": "15", "key": "yes"},
            },
            "serviceAccount": {"name": "1e3"},
            "counters": {
                "kind": "redis",
                "url": "redis://redis:1/2",
                "username": "123",
                "passwordSecret": {"name": "13", "key": "on"},
            },
            "embedder": {
                "kind": "openai",
                "baseUrl": "https://embed.example.com/v1",
                "model": "1",
                "dimension": 512,
                "apiKeySecret": {"name": "7", "key": "on"},
            },
            "ingress": {"enabled": True, "className": "1", "hosts": [_HOST]},
        },
        "weaviate": {
            "serviceAccount": {"name": "true"},
            "persistence": {"existingClaim": "8"},
            "apiKey": {"existingSecret": "9", "key": "off"},
        },
        "monitoring": {
            "scrapeConfig": {
                "enabled": True,
                "namespace": "10",
                "discovery": "kubernetes",
                "serviceAccount": {"name": "11"},
            },
            "dashboards": {"enabled": True, "namespace": "12"},
        },
    },
    "extras": {
        **{component: extras(component) for component in COMPONENTS},
        "agents": {"items": _AGENTS[:1], "namespaces": ["team-b"], "pod": agent_pod()},
        "commonLabels": {"example.com/owner": "platform"},
        "commonAnnotations": {"example.com/ticket": "42"},
        "imagePullSecrets": [{"name": "pull"}],
        "image": {"digest": "sha256:" + "0" * 64},
        "registry": extras("registry")
        | {
            "embedder": {
                "kind": "openai",
                "baseUrl": "https://embed.example.com/v1",
                "model": "m",
                "dimension": 512,
                "apiKeySecret": {"name": "embedder"},
            },
            "service": {"type": "LoadBalancer", "annotations": {"example.com/lb": "internal"}},
        },
    },
}
