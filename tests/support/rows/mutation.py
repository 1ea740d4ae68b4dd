"""Bytes with a few of them changed."""

from __future__ import annotations

import random


def mutated(rng: random.Random, data: bytes) -> bytes:
    """The bytes with a few of them changed, cut out, repeated or put in."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(out) + 1)
        match rng.randrange(4):
            case 0:
                out[at : at + 1] = rng.randbytes(1)
            case 1:
                del out[at : at + rng.choice((1, 8, 40))]
            case 2:
                out[at:at] = out[max(at - rng.choice((1, 8, 100)), 0) : at]
            case _:
                out[at:at] = rng.choice(
                    (b'"', b"{", b"}", b"\\", bytes(8), b"\xff" * 8, b"\x04\x22\x4d\x18", b"1e999", b"-0", b"[[[[", b"null")
                )
    return bytes(out)
