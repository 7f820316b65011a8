"""What a JSON schema's `format` means here: each check is given a value and tells whether it passes.

Values that are not text pass: `type` is what refuses them.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
import unicodedata
from collections.abc import Callable
from datetime import datetime

Check = Callable[[object], bool]

UUID = re.compile(r"(urn:uuid:)?\{?[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}\}?", re.IGNORECASE)
KEYPAIR_NAME = re.compile(r"[A-Za-z0-9 _-]+")
KEYPAIR_NAME_292 = re.compile(r"[A-Za-z0-9 @._-]+")

# What Nova says of a name that fails, in place of the schema's message.
PRINTABLE = "printable characters. Can not start or end with whitespace."
REASONS = {
    "name": PRINTABLE,
    "name_or_spaced": "printable characters with at least one non space character",
    "az_name": "printable characters except :. Can not start or end with whitespace.",
    "keypair_name": "Only letters, digits, spaces, underscores and hyphens are allowed.",
    "keypair_name_292": "Only letters, digits, spaces, underscores, hyphens, at signs and dots are allowed.",
}


def _text(check: Callable[[str], bool]) -> Check:
    return lambda value: not isinstance(value, str) or check(value)


def is_printable(text: str) -> bool:
    """Letters, marks, numbers, punctuation, symbols and horizontal spaces; no control or format characters (Nova)."""
    if text.isprintable():
        return True
    return all(character.isprintable() or unicodedata.category(character) == "Zs" for character in text)


def is_name(text: str) -> bool:
    return is_printable(text) and text == text.strip()


def is_name_or_spaced(text: str) -> bool:
    return is_printable(text) and bool(text.strip())


def is_base64(text: str) -> bool:
    """Nova's decoder: what is not of the alphabet is skipped, but padding must be right."""
    try:
        base64.b64decode(text.encode("ascii"))
    except (UnicodeEncodeError, binascii.Error):
        return False
    return True


def is_address(text: str, version: int) -> bool:
    try:
        return ipaddress.ip_address(text).version == version
    except ValueError:
        return False


def address(text: str) -> str:
    """An address as all write it: there are many ways to write one of IPv6."""
    return str(ipaddress.ip_address(text))


def is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def is_pattern(text: str) -> bool:
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError):
        return False
    return True


def whole(low: int, high: int) -> Check:
    """A number in text, within bounds; text that is not a number is the business of `pattern`."""

    def check(text: str) -> bool:
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit()):
            return True
        return len(digits) < 20 and low <= int(text) <= high

    return _text(check)


FORMATS: dict[str, Check] = {
    "name": _text(is_name),
    "name_or_spaced": _text(is_name_or_spaced),
    "az_name": _text(lambda text: is_name(text) and ":" not in text),
    "printable": _text(is_printable),
    "keypair_name": _text(lambda text: KEYPAIR_NAME.fullmatch(text) is not None),
    "keypair_name_292": _text(lambda text: KEYPAIR_NAME_292.fullmatch(text) is not None),
    "base64": _text(is_base64),
    "uuid": _text(lambda text: UUID.fullmatch(text) is not None),
    "ipv4": _text(lambda text: is_address(text, 4)),
    "ipv6": _text(lambda text: is_address(text, 6)),
    "date-time": _text(is_time),
    "regex": _text(is_pattern),
}
"""Filled further by `values.whole_number`: one format for each pair of bounds."""
