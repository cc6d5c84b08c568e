"""Storage of a test node: a default class, and local volumes made beforehand, since there is no provisioner."""

from pathlib import Path
from typing import Any

from realparts import nodeplan


def objects(folder: Path) -> list[dict[str, Any]]:
    """The default storage class and the volumes, in folders of the node's folder."""
    # Local volumes, since fsGroup holds for them and not for hostPath ones.
    where = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [nodeplan.NODE_NAME]}]}  # fmt: skip
    kind: dict[str, Any] = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": nodeplan.STORAGE_CLASS,
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    volumes = [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"v{number}"},
            "spec": {
                "capacity": {"storage": "100Gi"},
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": nodeplan.STORAGE_CLASS,
                "local": {"path": str(folder / "volumes" / f"v{number}")},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [where]}},
            },
        }
        for number in range(nodeplan.VOLUMES)
    ]
    return [kind, *volumes]
