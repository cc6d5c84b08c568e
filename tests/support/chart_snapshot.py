"""A rendering as text that can be kept: what changes with every rendering or release is masked."""

from typing import Any

import yaml

from chart import Object, Rendered, named

_MASK = "(masked)"


_Base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # libyaml's is ten times faster


class _Dumper(_Base):  # type: ignore[misc]
    """Texts of several lines as blocks; no anchors, so that a diff shows what changed where it is."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


def snapshot(rendered: Rendered) -> str:
    """The objects in order of kind and name, as YAML."""
    ordered = sorted(rendered.objects, key=lambda item: (named(item), item["metadata"].get("namespace", "")))
    return "---\n".join(
        yaml.dump(_masked(item), Dumper=_Dumper, sort_keys=True, allow_unicode=True, width=140)
        for item in ordered
    )


def _masked(item: Object) -> Object:
    if item["kind"] in ("CustomResourceDefinition", "ValidatingAdmissionPolicy"):
        # crds/ has it, and a test compares the two
        item = item | {"spec": _MASK}
    if item["kind"] == "Secret":
        item = item | {
            part: dict.fromkeys(item[part], _MASK) for part in ("data", "stringData") if part in item
        }
    if item["kind"] == "PrometheusRule":
        item = item | {"spec": "(a rule file)"}
    if item["kind"] == "ConfigMap":
        item = item | {"data": {name: _shortened(text) for name, text in (item.get("data") or {}).items()}}
    cleaned: Object = _walk(item)
    return cleaned


def _shortened(text: str) -> str:
    if "-----BEGIN" in text:
        return _MASK
    if text.lstrip().startswith(("{", "groups:", "#")):
        return "(a rule file or a dashboard)"
    return text


def _walk(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _MASK if _varies(key) else _walk(below) for key, below in value.items()}
    if isinstance(value, list):
        return [_walk(below) for below in value]
    return value


def _varies(key: str) -> bool:
    # versions, and what stands for generated certificates
    return key in {
        "helm.sh/chart",
        "app.kubernetes.io/version",
        "toolcrib.dev/not-after",
        "toolcrib.dev/certificate-for",
    } or key.startswith("checksum/")
