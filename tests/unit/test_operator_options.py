"""Options of the operator that decide whom it trusts."""

from pathlib import Path

import pytest

from toolcrib_operator.adapters.trust import Trust
from toolcrib_operator.errors import ReplicaUnavailable
from toolcrib_operator.options import parse

SERVICE = ["--registry-service", "toolcrib-system/toolcrib-registry-admin"]


def test_replicas_of_a_service_are_verified_by_its_name_unless_another_is_given() -> None:
    assert parse(SERVICE, {}).registry_server_name == "toolcrib-registry-admin.toolcrib-system.svc"
    named = parse([*SERVICE, "--registry-server-name", "registry.example"], {})
    assert named.registry_server_name == "registry.example"
    by_variable = parse(SERVICE, {"TOOLCRIB_OPERATOR_REGISTRY_SERVER_NAME": "registry.example"})
    assert by_variable.registry_server_name == "registry.example"
    assert parse(["--registry-url", "https://registry"], {}).registry_server_name is None


def test_a_ca_file_that_is_not_there_yet_is_named_and_found_later(tmp_path: Path) -> None:
    trust = Trust(tmp_path / "ca.crt")

    with pytest.raises(ReplicaUnavailable, match=r"--registry-ca .*ca\.crt cannot be used: No such file"):
        trust.context()
    (tmp_path / "ca.crt").write_text("nonsense")
    with pytest.raises(ReplicaUnavailable, match="cannot be used"):
        trust.context()
