"""Every recorded conversation with Canal 1.1.8 against ours. Answers are the same in type, error code, batch id and entries, byte by byte.

`DIFFERENT` says where they are not, and why.
"""

from __future__ import annotations

import pytest

from tests.support.canal.recordings import Player, recordings
from tidemill.canal.scramble import stored

UNASKED = "an error that nobody asked for closes the connection: else each later answer would be one late"
LOGIN = "before login every packet but CLIENTAUTHENTICATION is refused by its type"
PROCESS = "the connection is closed by the process, not by the conversation"
EMPTY = "of a transaction that the filters emptied nothing is sent; Canal lets some pairs of its ends through"
NO_RING = "there is no ring in memory that fills"
STARTING = "a destination is there as soon as the server listens"
STATEMENTS = "the store has no statements inside of transactions"

DIFFERENT: dict[str, tuple[str, list[str]]] = {
    "ack_out_of_order": (UNASKED, ["1: closed instead of ACK 400"]),
    "ack_unknown": (UNASKED, ["1: closed instead of ACK 400"]),
    "ack_zero_minus": (UNASKED, ["1: closed instead of ACK 402", "1: closed instead of ACK 400"]),
    "auth_idle_timeout": (PROCESS, ["1: open instead of closed"]),
    "auth_skip_open": (LOGIN, ["1: ACK 400 instead of ACK", "1: ACK 400 instead of ACK", "1: ACK 400 instead of batch -1 of 0"]),
    "ddl_all": (STATEMENTS, ["1: batch 1 of 34 instead of batch 1 of 34"]),
    "ddl_filtered": (EMPTY, ["1: batch 1 of 8 instead of batch 1 of 10"]),
    "dml_annotate": (STATEMENTS, ["1: batch 1 of 4 instead of batch 1 of 4"]),
    "dml_statement": (STATEMENTS, ["1: batch 1 of 6 instead of batch 1 of 14"]),
    "dml_type_filter": (EMPTY, ["1: batch 1 of 6 instead of batch 1 of 8"]),
    "get_before_sub": (UNASKED, ["1: closed instead of ACK 400"]),
    "instance_starting": (STARTING, ["1: ACK instead of ACK 400", *["1: no answer instead of ACK 400"] * 4]),
    "raw_false": (
        "an entry is as long as it is, not six times its event",
        ["1: batch 1 of 6 instead of batch 1 of 5", "1: batch 2 of 6 instead of batch 2 of 7"],
    ),
    "rb_unknown": (UNASKED, ["1: closed instead of ACK 400"] * 2),
    "resume_restart": (
        "a restart repeats nothing that was acknowledged; Canal sends its last TRANSACTIONEND again. " + UNASKED,
        [
            *("1: open instead of closed", "2: batch 1 of 9 instead of batch 1 of 9", "2: closed instead of ACK 400"),
            "3: batch 2 of 81 instead of batch 2 of 82",
        ],
    ),
    "server_stops": (PROCESS, ["1: open instead of closed"]),
    "store_full": (
        NO_RING,
        [
            *("1: batch 7 of 20 instead of batch 7 of 6", "1: batch 8 of 6 instead of batch -1 of 0"),
            "1: batch -1 of 0 instead of batch 8 of 20",
        ],
    ),
    "sub_filter": (EMPTY, ["1: batch 1 of 6 instead of batch 1 of 8"]),
    "sub_unknown_dest": (UNASKED, ["1: closed instead of ACK 400"]),
    "two_same_id": (UNASKED, ["2: closed instead of ACK 400", "1: closed instead of ACK 400"]),
    "tx_empty_filtered": (EMPTY, ["1: batch -1 of 0 instead of batch 1 of 6"]),
}
"""Recording: why, and each answer that differs (connection: ours instead of Canal's)."""

ALL = recordings()


@pytest.mark.parametrize("name", sorted(ALL))
def test_answers_are_canals(name: str) -> None:
    _, different = DIFFERENT.get(name, ("", []))
    assert Player(ALL[name], stored("Canal@123")).play() == different


def test_the_table_names_recordings() -> None:
    assert set(DIFFERENT) <= set(ALL)
    assert len(ALL) == 67
