"""TLS of the listeners: certificates that change while the process runs, and those that cannot be used."""

import datetime
import os
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from realparts import loaded
from realparts.processes import wait_until
from registry_harness import binding, mint, tool
from registry_process import COMMAND, RegistryProcess, configuration, process
from secret_volume import SecretVolume
from toolcrib_registry.http.certificates import CertificateError, ServedCertificate

AUTH = {"Authorization": f"Bearer {mint('system:serviceaccount:team:bot')}"}
NAMES = ("registry.test", "127.0.0.1")
EXPIRY = "toolcrib_certificate_expiry_timestamp_seconds"


def served(port: int, name: str | None = None) -> x509.Certificate:
    """The certificate that a fresh connection is shown; without a name the client indicates none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", port), timeout=30) as raw,
        context.wrap_socket(raw, server_hostname=name) as connection,
    ):
        shown = connection.getpeercert(binary_form=True)
    assert shown is not None
    return x509.load_der_x509_certificate(shown)


def issued_by(port: int, name: str | None = None) -> str:
    (issuer,) = served(port, name).issuer
    return str(issuer.value)


def command_line(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "toolcrib_cli", *arguments]
    return loaded.run(command, timeout=60)


def said(running: RegistryProcess, *words: str) -> bool:
    return any(all(w in str(line.get("message")) for w in words) for line in running.lines)


@pytest.mark.slow
def test_new_certificates_are_served_at_once_connections_stay_and_old_versions_of_tls_are_refused(
    tmp_path: Path,
) -> None:
    volume = SecretVolume(tmp_path / "tls", *NAMES)
    files = volume.files
    with process(
        configuration(tmp_path / "r", tls=files, admin_tls=files, metrics={"port": 0, "tls": files}),
        scheme="https",
    ) as running:
        running.publish(tool("calculator"), bindings=(binding("bot"),))
        trusted = ssl.create_default_context(cafile=str(volume.ca))
        with httpx.Client(
            verify=trusted, headers=AUTH, timeout=30, limits=httpx.Limits(keepalive_expiry=60)
        ) as kept:
            assert kept.get(running.url + "/").json()["total_available"] == 1
            for port in (running.agents, running.metrics, running.admin):
                assert (issued_by(port), issued_by(port, "registry.test")) == ("ca one", "ca one")

            assert _handshakes(running.agents, ssl.TLSVersion.TLSv1_2)
            assert not _handshakes(running.agents, ssl.TLSVersion.TLSv1_1)

            volume.swap("two")
            wait_until(lambda: issued_by(running.agents) == issued_by(running.admin) == "ca two", 60)
            assert issued_by(running.agents, "registry.test") == "ca two"
            # the connection of before is still the same: a new one would not be trusted
            assert kept.get(running.url + "/").json()["total_available"] == 1

            volume.swap("three", key_of="one")
            wait_until(lambda: said(running, "do not work together", "keeping the previous certificate"), 60)
            assert issued_by(running.agents) == "ca two"
            assert kept.get(running.url + "/").status_code == 200

            volume.swap("four")
            wait_until(lambda: issued_by(running.agents) == issued_by(running.admin) == "ca four", 60)
        token = tmp_path / "token"
        token.write_text(AUTH["Authorization"].removeprefix("Bearer "))
        listed = command_line("tools", "--url", running.url, "--token-file", str(token))
        assert (listed.returncode, "--ca-file" in listed.stderr) == (3, True), listed
        listed = command_line(
            "tools", "--url", running.url, "--token-file", str(token), "--ca-file", str(volume.ca)
        )
        assert "team/calculator" in listed.stdout, listed
        metrics = httpx.get(f"https://127.0.0.1:{running.metrics}/metrics", verify=False).text
        wanted = served(running.admin).not_valid_after_utc
    found = {
        line.split()[0]: float(line.split()[1]) for line in metrics.splitlines() if line.startswith(EXPIRY)
    }
    assert set(found) == {f'{EXPIRY}{{listener="{name}"}}' for name in ("agents", "metrics", "admin")}
    assert {datetime.datetime.fromtimestamp(v, datetime.UTC) for v in found.values()} == {wanted}


def _handshakes(port: int, version: ssl.TLSVersion) -> bool:
    # OpenSSL's command line is no dependency: Python may still speak old versions at security level 0
    code = (
        "import socket, ssl, sys, warnings\n"
        "warnings.simplefilter('ignore')\n"
        "c = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)\n"
        "c.check_hostname, c.verify_mode = False, ssl.CERT_NONE\n"
        "c.set_ciphers('ALL:@SECLEVEL=0')\n"
        f"c.minimum_version = c.maximum_version = ssl.TLSVersion({int(version)})\n"
        f"s = c.wrap_socket(socket.create_connection(('127.0.0.1', {port}), 5))\n"
        "print(s.version())\n"
    )
    done = subprocess.run([COMMAND[0], "-c", code], capture_output=True, text=True, timeout=30)
    return done.returncode == 0


@pytest.mark.parametrize(
    ("certificate", "key", "words"),
    [
        ("nowhere.crt", "tls.key", "No such file"),
        ("tls.key", "tls.key", "do not work together"),
        ("tls.crt", "ca.key", "key values mismatch"),
    ],
)
def test_a_pair_that_cannot_be_served_at_the_start_is_named(
    tmp_path: Path, certificate: str, key: str, words: str
) -> None:
    volume = SecretVolume(tmp_path, *NAMES).version("one")

    with pytest.raises(CertificateError, match=words) as raised:
        ServedCertificate("admin", str(volume / certificate), str(volume / key))

    assert certificate in str(raised.value)
    assert "PRIVATE" not in str(raised.value)


def test_a_process_without_its_certificate_ends_with_a_clear_word(tmp_path: Path) -> None:
    files = {"cert_file": str(tmp_path / "tls.crt"), "key_file": str(tmp_path / "tls.key")}
    path = configuration(tmp_path / "r", admin_tls=files)

    done = loaded.run([*COMMAND, "--config", str(path)], timeout=60)

    assert done.returncode == 1
    assert f"certificate {tmp_path}/tls.crt or key" in done.stderr
    assert "Traceback" not in done.stderr


def _write(file: Path, content: bytes, modified: int) -> None:
    file.write_bytes(content)
    os.utime(file, ns=(modified, modified))


def test_a_pair_that_could_not_be_loaded_is_tried_again_though_its_files_look_the_same(
    tmp_path: Path,
) -> None:
    volume = SecretVolume(tmp_path / "tls", *NAMES).version("one")
    certificate, key = volume / "tls.crt", volume / "tls.key"
    good = key.read_bytes()
    _write(key, good, 1)
    served_one = ServedCertificate("agents", str(certificate), str(key))
    # as after chmod, which root does not feel: neither time nor inode nor size tell that it is another
    _write(key, b"x" * len(good), 2)
    assert not served_one.refresh()
    assert not served_one.refresh()
    _write(key, good, 2)

    assert served_one.refresh()
    assert not served_one.refresh()


def test_a_new_certificate_that_clients_would_refuse_waits_until_the_old_one_is_no_better(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    private = ec.generate_private_key(ec.SECP256R1())
    key.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )

    def issue(begins: float, ends: float) -> float:
        """A certificate of these hours from now; when it expires."""
        now, name = datetime.datetime.now(datetime.UTC), x509.Name([])
        builder = (
            x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(private.public_key())
        )
        builder = builder.serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(now + datetime.timedelta(hours=begins))
        made = builder.not_valid_after(now + datetime.timedelta(hours=ends)).sign(private, hashes.SHA256())
        certificate.with_suffix(".new").write_bytes(made.public_bytes(serialization.Encoding.PEM))
        certificate.with_suffix(".new").replace(certificate)
        return made.not_valid_after_utc.timestamp()

    expired = issue(-3, -2)
    shown = ServedCertificate("agents", str(certificate), str(key))
    assert "has expired" in caplog.text
    assert shown.expires_at == expired
    also = issue(-3, -1)
    assert shown.refresh(), "where both have expired the files decide"
    assert shown.expires_at == also
    valid = issue(-1, 1)
    assert shown.refresh()
    for begins, ends in ((-2, -1), (1, 2)):
        issue(begins, ends)
        assert not shown.refresh()
        assert shown.expires_at == valid
    assert caplog.text.count("keeping the previous certificate") == 1
    again = issue(-1, 2)
    assert shown.refresh()
    assert shown.expires_at == again


def test_a_key_with_a_password_is_refused_and_nobody_is_asked_for_it(tmp_path: Path) -> None:
    volume = SecretVolume(tmp_path, *NAMES).version("one")
    private = serialization.load_pem_private_key((volume / "tls.key").read_bytes(), None)
    locked = serialization.BestAvailableEncryption(b"secret")
    (volume / "tls.key").write_bytes(
        private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked)
    )

    with pytest.raises(CertificateError, match="is encrypted"):
        ServedCertificate("admin", str(volume / "tls.crt"), str(volume / "tls.key"))
