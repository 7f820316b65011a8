"""Keys themselves: fingerprints of public ones, and pairs made for those who bring none (until Nova API 2.91)."""

from __future__ import annotations

import base64
import hashlib
from datetime import UTC, datetime, timedelta

from gateway.faults import Fault

RSA_BITS, CERTIFICATE_DAYS = 2048, 3650
UPN = "1.3.6.1.4.1.311.20.2.3"  # Microsoft's user principal name: what WinRM knows a certificate's bearer by


def fingerprint(public_key: str, kind: str) -> str:
    """MD5 of the key's bytes for ssh, SHA-1 of the certificate for x509, in pairs of hex digits, as Nova shows it.

    Raises:
        Fault: 400, it is not a key of that kind.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization

    try:
        if kind == "x509":
            digest = x509.load_pem_x509_certificate(public_key.encode()).fingerprint(hashes.SHA1()).hex()
        else:
            serialization.load_ssh_public_key(public_key.encode())
            blob = base64.b64decode(public_key.split()[1])
            digest = hashlib.md5(blob, usedforsecurity=False).hexdigest()
    except Exception:
        what = "X509 fingerprint" if kind == "x509" else "fingerprint"
        raise Fault(400, f"Keypair data is invalid: failed to generate {what}") from None
    return ":".join(digest[i : i + 2] for i in range(0, len(digest), 2))


def generated(kind: str, user_id: str) -> tuple[str, str]:
    """A new public and private key, as text."""
    return _certificate(user_id) if kind == "x509" else _ssh()


def _ssh() -> tuple[str, str]:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519

    key = ed25519.Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return public.decode() + " Generated-by-Compute-Ledger", private.decode()


def _certificate(user_id: str) -> tuple[str, str]:
    """For logins to Windows guests without a password: a client's certificate, and its key as PKCS 12 in base64."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import pkcs12
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = rsa.generate_private_key(public_exponent=65537, key_size=RSA_BITS)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, user_id[:64])])
    now = datetime.now(UTC)
    principal = f"{user_id}@localhost".encode()[:127]
    upn = x509.OtherName(x509.ObjectIdentifier(UPN), b"\x0c" + bytes([len(principal)]) + principal)  # a DER UTF8String
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=CERTIFICATE_DAYS))
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([upn]), critical=False)
        .sign(key, hashes.SHA256())
    )
    bundle = pkcs12.serialize_key_and_certificates(None, key, certificate, None, serialization.NoEncryption())
    return certificate.public_bytes(serialization.Encoding.PEM).decode(), base64.b64encode(bundle).decode()
