"""Numbers and hashes as Java 17 writes them."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path
from random import Random

import pytest

from tests.support.canal.golden import lines
from tests.support.servers.java_sources import java_version
from tests.support.thorough import FUZZ
from tidemill.canal.flat.javatext import java_double, java_float, java_hash


def test_hashes_of_java() -> None:
    for line in lines("java_string_hash"):
        assert java_hash(line["s"]) == line["hash"], line


def test_texts_of_java() -> None:
    for line in lines("java_float_text"):
        (single,) = struct.unpack(">f", bytes.fromhex(line["f"]))
        (double,) = struct.unpack(">d", bytes.fromhex(line["d"]))
        assert (java_float(single), java_double(double)) == (line["float"], line["double"]), line


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
        (float("nan"), "NaN"),
        (5e-324, "4.9E-324"),
        (2e-3, "0.002"),
        (2.0**-44, "5.6843418860808015E-14"),
        (2.2250738585072014e-308, "2.2250738585072014E-308"),
        (9007199254740993.0, "9.007199254740992E15"),
        (2.0**62, "4.6116860184273879E18"),
        (2e23, "1.9999999999999998E23"),
    ],
)
def test_known_texts(value: float, text: str) -> None:
    """Some are longer than they need be: Java before version 19 writes them so."""
    assert java_double(value) == text


def test_texts_read_back() -> None:
    chance = Random(3)
    for _ in range(3000):
        (value,) = struct.unpack(">d", chance.randbytes(8))
        if value == value:
            assert float(java_double(value)) == value


SOURCE = """
public class Floats {
  public static void main(String[] a) throws Exception {
    var in = new java.io.DataInputStream(new java.io.BufferedInputStream(System.in));
    var out = new java.io.PrintStream(new java.io.BufferedOutputStream(System.out));
    for (int i = Integer.parseInt(a[0]); i > 0; i--) {
      long bits = in.readLong();
      out.println(Double.toString(Double.longBitsToDouble(bits)) + " " + Float.toString(Float.intBitsToFloat((int) bits)));
    }
    out.flush();
  }
}
"""


COUNT = 4_000 * FUZZ


@pytest.mark.slow
def test_the_same_as_java(tmp_path: Path) -> None:
    """Random bits, and numbers that people write: near powers of ten and two, with few digits, subnormal.

    `TIDEMILL_FUZZ=N` makes N times as many."""
    if not 0 < java_version() < 19:
        pytest.skip("no JDK below version 19 here")
    chance = Random(17)
    numbers: list[int] = [chance.getrandbits(64) for _ in range(COUNT)]
    for _ in range(COUNT):
        value = chance.choice(
            (
                round(chance.uniform(-1e7, 1e7), chance.randrange(9)),
                float(f"{chance.randrange(10 ** chance.randint(1, 17))}e{chance.randint(-30, 30)}"),
                2.0 ** chance.randint(-1074, 1023),
                float(chance.getrandbits(chance.randint(1, 63))),
                chance.getrandbits(chance.randint(1, 52)) * 5e-324,
            )
        )
        (bits,) = struct.unpack(">Q", struct.pack(">d", value))
        (single,) = struct.unpack(">I", struct.pack(">f", max(min(value, 3e38), -3e38)))
        numbers += [bits, single]
    source = tmp_path / "Floats.java"
    source.write_text(SOURCE)
    data = b"".join(struct.pack(">Q", bits) for bits in numbers)
    said = subprocess.run(["java", str(source), str(len(numbers))], input=data, capture_output=True, check=True, timeout=300).stdout
    for bits, line in zip(numbers, said.decode().splitlines(), strict=True):
        (double,) = struct.unpack(">d", struct.pack(">Q", bits))
        (single,) = struct.unpack(">f", struct.pack(">I", bits & 0xFFFFFFFF))
        assert f"{java_double(double)} {java_float(single)}" == line, hex(bits)
