"""Compare-and-swap when answers get lost, and stores that only seem to support it."""

from __future__ import annotations

import pytest

from tests.support.changelog.memory_storage import Bucket, MemoryObjects
from tidemill.changelog.storage.base import Token
from tidemill.changelog.storage.conditional import TRIES, Outcome, swap, tried
from tidemill.errors import LogUnavailable


class Flaky(MemoryObjects):
    """Answers with what it is told to, as long as that lasts: None is the true answer; a request is done all the same, or not."""

    def __init__(self, bucket: Bucket, *answers: tuple[Outcome | None, bool]) -> None:
        super().__init__(bucket)
        self.answers = list(answers)

    def put(self, name: str, data: bytes, expected: Token | None) -> Token | Outcome:
        answer, is_done = self.answers.pop(0) if self.answers else (None, True)
        outcome = super().put(name, data, expected) if is_done else None
        return answer or outcome or Outcome.UNKNOWN


LOST = (Outcome.UNKNOWN, True)
NEVER_CAME = (Outcome.UNKNOWN, False)
SECOND_TRY_OF_THE_CLIENT = (Outcome.REFUSED, True)  # the first try was done, its answer lost, and the client tried by itself again


@pytest.mark.parametrize("answers", [[], [LOST], [NEVER_CAME], [NEVER_CAME, LOST], [SECOND_TRY_OF_THE_CLIENT], [NEVER_CAME] * (TRIES - 1)])
def test_a_swap_succeeds_whatever_became_of_its_answers(answers: list[tuple[Outcome | None, bool]]) -> None:
    bucket = Bucket()
    first = bucket.put("a", b"1")
    token = swap(Flaky(bucket, *answers), "a", first, b"2")
    assert token == bucket.token("a")
    assert bucket.content["a"] == b"2"
    assert swap(Flaky(Bucket(), *answers), "a", None, b"2") is not None


@pytest.mark.parametrize("answers", [[], [LOST], [NEVER_CAME], [NEVER_CAME, NEVER_CAME]])
def test_a_swap_of_an_old_version_fails_whatever_became_of_its_answers(answers: list[tuple[Outcome | None, bool]]) -> None:
    bucket = Bucket()
    first = bucket.put("a", b"1")
    bucket.put("a", b"other")
    assert swap(Flaky(bucket, *answers), "a", first, b"2") is None
    assert swap(Flaky(bucket, *answers), "a", None, b"2") is None
    assert bucket.content["a"] == b"other"


def test_a_swap_whose_outcome_nobody_knows_is_an_error_not_a_fence() -> None:
    bucket = Bucket()
    first = bucket.put("a", b"1")
    with pytest.raises(LogUnavailable, match="does not say"):
        swap(Flaky(bucket, *[NEVER_CAME] * TRIES), "a", first, b"2")


class Forgetful(MemoryObjects):
    """Ignores the conditions of requests, of one kind or both."""

    def __init__(self, creating: bool, swapping: bool) -> None:
        super().__init__(Bucket())
        self.keeps = {True: creating, False: swapping}

    def put(self, name: str, data: bytes, expected: Token | None) -> Token | Outcome:
        if self.keeps[expected is None]:
            return super().put(name, data, expected)
        return self.bucket.put(name, data)


class Refusing(MemoryObjects):
    def put(self, name: str, data: bytes, expected: Token | None) -> Token | Outcome:
        return Outcome.UNCONDITIONAL


def test_a_store_that_ignores_conditions_is_found_out() -> None:
    assert tried(MemoryObjects(Bucket()))
    bucket = Bucket()
    assert tried(MemoryObjects(bucket))
    assert tried(MemoryObjects(bucket))
    assert tried(Flaky(Bucket(), LOST, NEVER_CAME, LOST))
    for creating, swapping in ((False, False), (True, False), (False, True)):
        assert not tried(Forgetful(creating, swapping))
    assert not tried(Refusing(Bucket()))
