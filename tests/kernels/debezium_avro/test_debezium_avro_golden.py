"""Kernel and reference write the same messages for every row of the golden vectors, and the kernel hands almost none back."""

from __future__ import annotations

import pytest

from tests.support.golden import ticdc
from tests.support.golden.text_rows import encode_all, golden_records
from tests.support.rows.debezium_avro_programs import MODES, NOW, encoder_of

NO_ELEMENT = 8
"""Most rows with a member that their ENUM or SET does not have: the reference writes the empty text for it."""


@pytest.mark.parametrize("mode", [0, len(MODES) - 1])
def test_kernel_and_reference_agree(mode: int) -> None:
    programs, records = golden_records(ticdc.rows())
    encoder = encoder_of(programs, MODES[mode])
    references = [program.reference for program in encoder.programs]
    got = [(m.key, m.value) for m in encode_all(encoder, records)]
    want = [references[r.table].row(r.key, r.value, r.old_value, r.start_ts, r.commit_ts, NOW) for r in records]
    wrong = [(found, wanted) for found, wanted in zip(got, want, strict=True) if found != wanted]
    assert not wrong, wrong[:1]
    assert len(got) > 2000
    assert encoder.slow_rows <= NO_ELEMENT
