"""Certificates and keys that settings name, tried before anything is started with them."""

from __future__ import annotations

import ssl
from pathlib import Path

from gateway.settings import SettingsInvalid


def refuse_unusable(section: str, certificate: str, key: str | None) -> None:
    """Raises:
    SettingsInvalid: the files cannot be read, or hold no certificate and its key.
    """
    try:
        for file in filter(None, (certificate, key)):
            Path(file).read_bytes()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key, password="")  # nobody is asked for one
    except ssl.SSLError as error:
        raise SettingsInvalid(
            f"[{section}] {certificate} is no certificate with an open key in {key or certificate}: {error.reason or error}"
        ) from None
    except OSError as error:
        raise SettingsInvalid(f"[{section}] {error.filename} cannot be read: {error.strerror}") from None


def refuse_no_authority(section: str, file: str) -> None:
    """Raises:
    SettingsInvalid
    """
    try:
        ssl.create_default_context(cafile=file)
    except OSError as error:  # ssl.SSLError is one
        raise SettingsInvalid(f"[{section}] {file} holds no certificates: {error.strerror or error}") from None
