"""The passwords that `binlogctl -cmd encrypt` of TiDB-Binlog makes: base64 of a first block, `@`, and the text in AES-CFB."""

from __future__ import annotations

import base64
import binascii
import os

from tidemill.errors import ConfigError
from tidemill.extras import extra

with extra("binlog"):
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

KEY_VARIABLE = "BINLOG_SECRET_KEY"
KNOWN_KEY = bytes.fromhex("a529b7665997f043a30ac8fadcb51d6aa032c226ab5b7750530b12b8c1a16a48")
"""What the real programs take where the environment names no key. It is published with them, so it hides a password only from a glance."""
_BLOCK = 16


def decrypted(text: str, what: str) -> str:
    """Return the password. Raises ConfigError, which has neither key nor text."""
    key = _key()
    try:
        data = base64.b64decode(text, validate=True)
        if len(data) <= _BLOCK or data[_BLOCK : _BLOCK + 1] != b"@":
            raise ValueError
        return _cfb(key, data[:_BLOCK], data[_BLOCK + 1 :]).decode()
    except (binascii.Error, ValueError):
        raise ConfigError(
            f"{what} cannot be decrypted",
            hint=f"Make it by `binlogctl -cmd encrypt` of TiDB-Binlog, with the same {KEY_VARIABLE} in the environment as here.",
        ) from None


def _key() -> bytes:
    given = os.environ.get(KEY_VARIABLE, "")
    try:
        key = bytes.fromhex(given) if given else KNOWN_KEY
    except ValueError:
        key = b""
    if len(key) not in (16, 24, 32):
        raise ConfigError(f"{KEY_VARIABLE} is not a key of 16, 24 or 32 bytes in hex")
    return key


def _cfb(key: bytes, block: bytes, data: bytes) -> bytes:
    """Each block of text is the block before it, encrypted once more, turned over the data."""
    cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    out = bytearray()
    for at in range(0, len(data), _BLOCK):
        part = data[at : at + _BLOCK]
        out += bytes(a ^ b for a, b in zip(cipher.update(block), part, strict=False))
        block = part
    return bytes(out)
