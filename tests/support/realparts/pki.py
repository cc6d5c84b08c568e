"""A small PKI of a test server or node: one CA, certificates, RSA keys. Made anew for each."""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_VALID = datetime.timedelta(days=7)


class Authority:
    """A CA whose certificate and key, and those it issues, are written into one folder as PEM files.

    The extensions are those that Python 3.13's strict verification asks for.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self._folder = folder
        self._name = _name(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _certificate(self._name, self._name, self._key.public_key(), self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(sign_certificates=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        (folder / "ca.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        _write_key(folder / "ca.key", self._key)

    def issue(self, file: str, common: str, *, organization: str = "", hosts: tuple[str, ...] = ()) -> None:
        """Write `file`.crt and `file`.key: a server for `hosts`, and a client named `common` of `organization`."""
        key = ec.generate_private_key(ec.SECP256R1())
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])]
        builder = (
            _certificate(_name(common, organization), self._name, key.public_key(), self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(sign_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        )
        if hosts:
            names = x509.SubjectAlternativeName([_san(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        (self._folder / f"{file}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        _write_key(self._folder / f"{file}.key", key)


def write_server_certificate(folder: Path, hosts: tuple[str, ...]) -> None:
    """Write `ca.crt`, `server.crt` and `server.key` (PEM) for names and addresses, valid for a week."""
    Authority("toolcrib-test-ca", folder).issue("server", "kube-apiserver", hosts=hosts)


def write_rsa_key(path: Path) -> None:
    """Write a new RSA key (PEM, 2048 bits), as a cluster signs service-account tokens with."""
    _write_key(path, rsa.generate_private_key(public_exponent=65537, key_size=2048))


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    issuer_key: ec.EllipticCurvePublicKey,
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + _VALID)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False)
    )


def _usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not sign_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common: str, organization: str = "") -> x509.Name:
    parts = [(NameOID.ORGANIZATION_NAME, organization)] if organization else []
    return x509.Name([x509.NameAttribute(*part) for part in [*parts, (NameOID.COMMON_NAME, common)]])


def _san(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
