"""Certificates for 127.0.0.1, made in an instant and good for a day."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


@dataclass(frozen=True, slots=True)
class Authority:
    """Vouches for others."""

    directory: Path
    name: x509.Name
    key: ec.EllipticCurvePrivateKey
    certificate: Path

    @classmethod
    def made(cls, directory: Path, name: str) -> Authority:
        key, subject = ec.generate_private_key(ec.SECP256R1()), _name(name)
        certificate = directory / f"{name}.crt"
        certificate.write_bytes(_signed(subject, key, subject, key, is_authority=True))
        return cls(directory, subject, key, certificate)

    def certificate_of(self, name: str) -> tuple[Path, Path]:
        """One for a server, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        content = _signed(_name(name), key, self.name, self.key, is_authority=False)
        return _written(self.directory, name, content, key)


def certificate_of(directory: Path, name: str) -> tuple[Path, Path]:
    """One that vouches for itself, and its key."""
    key, subject = ec.generate_private_key(ec.SECP256R1()), _name(name)
    return _written(directory, name, _signed(subject, key, subject, key, is_authority=True), key)


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _signed(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    by: ec.EllipticCurvePrivateKey,
    *,
    is_authority: bool,
) -> bytes:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=1))
    address = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))])
    builder = builder.add_extension(address, critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    return builder.sign(by, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _written(directory: Path, name: str, content: bytes, key: ec.EllipticCurvePrivateKey) -> tuple[Path, Path]:
    certificate, private = directory / f"{name}.crt", directory / f"{name}.key"
    certificate.write_bytes(content)
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return certificate, private
