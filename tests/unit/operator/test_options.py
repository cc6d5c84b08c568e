"""Options of the operator that decide whom it trusts, and as whom it speaks."""

import os
from pathlib import Path

import aiohttp
import pytest

from secret_volume import SecretVolume
from toolcrib_operator.adapters.replica_http import HttpReplica
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


@pytest.mark.parametrize(("given", "trusted"), [("", ()), ("a/b, c", ("a/b", "c"))])
def test_no_label_is_trusted_where_the_list_is_empty(given: str, trusted: tuple[str, ...]) -> None:
    flag, variable = "--trusted-namespace-labels", "TOOLCRIB_OPERATOR_TRUSTED_NAMESPACE_LABELS"

    assert parse([*SERVICE, flag, given], {}).loop.trusted_namespace_labels == trusted
    assert parse(SERVICE, {variable: given}).loop.trusted_namespace_labels == trusted
    assert parse(SERVICE, {}).loop.trusted_namespace_labels == ("kubernetes.io/metadata.name",)


def test_no_anchors_are_kept_where_their_name_is_empty() -> None:
    assert parse(SERVICE, {"TOOLCRIB_OPERATOR_AUDIT_ANCHORS": ""}).anchors is None
    assert parse([*SERVICE, "--audit-anchors", ""], {}).anchors is None
    assert parse(SERVICE, {}).anchors is not None


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--registry-port", "tcp://1"], "--registry-port (TOOLCRIB_OPERATOR_REGISTRY_PORT)"),
        (["--registry-service", "one"], "--registry-service (TOOLCRIB_OPERATOR_REGISTRY_SERVICE)"),
        (["--quota-bytes", "much"], "--quota-bytes (TOOLCRIB_OPERATOR_QUOTA_BYTES)"),
        (["--lease-renew", "99"], "--lease-retry must be below --lease-renew"),
        (["--registry-url", "http://r"], "either --registry-url"),
        (["--agent-pod", "{nodeSelector}"], 'must be a JSON object, as in \'{"nodeSelector": {'),
        (["--agent-pod", "[]"], "--agent-pod (TOOLCRIB_OPERATOR_AGENT_POD): must be a JSON object"),
        (["--agent-pod", '{"nodeSelectr": {}}'], "nodeSelectr: unknown field (did you mean nodeSelector?)"),
        (
            ["--agent-pod", '{"tolerations": {}, "resources": 1}'],
            "resources: must be an object; tolerations: must be a list",
        ),
    ],
)
def test_a_wrong_option_is_named_and_ends_with_2(
    flags: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse([*SERVICE, *flags], {})

    assert ended.value.code == 2
    assert named in " ".join(capsys.readouterr().err.split())


def test_a_ca_file_that_is_not_there_yet_is_named_and_found_later(tmp_path: Path) -> None:
    trust = Trust(tmp_path / "ca.crt")

    with pytest.raises(ReplicaUnavailable, match=r"--registry-ca .*ca\.crt cannot be used: No such file"):
        trust.context()
    (tmp_path / "ca.crt").write_text("nonsense")
    with pytest.raises(ReplicaUnavailable, match="cannot be used"):
        trust.context()


def test_a_ca_file_that_could_not_be_used_is_tried_again_though_it_looks_the_same(tmp_path: Path) -> None:
    volume = SecretVolume(tmp_path / "tls", "registry.test")
    good, file = volume.ca.read_bytes(), tmp_path / "ca.crt"

    def write(content: bytes, modified: int) -> None:
        file.write_bytes(content)
        os.utime(file, ns=(modified, modified))

    write(good, 1)
    trust = Trust(file)
    first = trust.context()
    write(b"x" * len(good), 2)
    assert trust.context() is first
    write(good, 2)

    second = trust.context()
    assert second is not first
    assert trust.context() is second


@pytest.mark.anyio
@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"two lines\nX-Other: header", "tokén".encode()])
async def test_a_token_file_that_holds_no_token_is_named(tmp_path: Path, content: bytes) -> None:
    token = tmp_path / "token"
    token.write_bytes(content)
    async with aiohttp.ClientSession() as session:
        with pytest.raises(ReplicaUnavailable, match=r"token file .* holds no token"):
            await HttpReplica("http://127.0.0.1:9", session, token_file=token).inventory()
