"""A registry's answers: status and bytes → a value, or the error to raise. Pure.

In Confluent's HTTP interface an answer is JSON. A refusal has a status of 400 or more and {"error_code": int, "message": text}.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tidemill.errors import RegistryError, RegistryUnavailable, SchemaIncompatible, redact

LONGEST_ANSWER = 4 << 20
"""The most bytes of an answer. Lists of subjects and schemas of wide tables have far fewer."""
_SHOWN = 600  # characters of a refusal that an error repeats
_LARGEST_ID = (1 << 31) - 1  # four bytes on the wire, signed in Java


class NotThere(RegistryError):
    """404 with one of the registry's own codes: no such subject, version or schema."""

    code = "TM:ErrSchemaRegistryNotThere"


class Forbidden(RegistryError):
    """403: the user may not do that. Other requests may be allowed."""

    code = "TM:ErrSchemaRegistryForbidden"


_API_HINT = "Does the address name a registry with Confluent's interface? Apicurio has it at /apis/ccompat/v7."
_USER_HINT = "Check user and password in the registry's address; both have to be percent-encoded."


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one request. `asked` describes the request for people."""

    asked: str
    status: int
    body: bytes

    @property
    def may_pass(self) -> bool:
        """Whether the request may succeed if it is tried again."""
        return self.status in (408, 425, 429) or self.status >= 500

    def json(self) -> Any:
        """Return the content of a successful answer.

        Raises SchemaIncompatible (409), NotThere, RegistryError, or RegistryUnavailable if trying again may help.
        """
        content = _parsed(self.body)
        if 200 <= self.status < 300:
            if content is None:
                raise self.nonsense("it is not JSON")
            return content
        raise self._refusal(content)

    def nonsense(self, why: str) -> RegistryUnavailable:
        """Return the error about an answer that is not a registry's: a proxy's, a starting server's, another service's."""
        return RegistryUnavailable(
            f"{self.asked}: the answer, {self.status}, is not that of a schema registry: {why}",
            hint=_API_HINT,
        )

    def _refusal(self, content: Any) -> RegistryError | RegistryUnavailable:
        told = _message(content)
        code = content.get("error_code") if isinstance(content, dict) else None
        text = f"{self.asked}: the schema registry answers {self.status}" + (f": {told}" if told else "")
        if self.status == 409:
            return SchemaIncompatible(text)
        if self.status in (401, 403):
            return (Forbidden if self.status == 403 else RegistryError)(text, hint=_USER_HINT)
        if self.status == 404 and isinstance(code, int) and 40400 <= code <= 40499:
            return NotThere(text)
        if self.may_pass:
            return RegistryUnavailable(text)
        if not told:
            return self.nonsense("it gives no reason as a registry does")
        return RegistryError(text, hint=_API_HINT if self.status == 404 else "")


def schema_id(answer: Answer) -> int:
    """Return n of {"id": n}. Raises the errors of `Answer.json`."""
    content = answer.json()
    number = content.get("id") if isinstance(content, dict) else None
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= _LARGEST_ID:
        raise answer.nonsense("it has no schema id")
    return number


def text_member(answer: Answer, *names: str) -> str:
    """Return the first of these members that is a string. Raises the errors of `Answer.json`."""
    content = answer.json()
    found = next((content[name] for name in names if isinstance(content.get(name), str)), None) if isinstance(content, dict) else None
    if found is None:
        raise answer.nonsense(f"it has no {names[0]}")
    return str(found)


def texts(answer: Answer) -> frozenset[str]:
    """Return a list of strings. Raises the errors of `Answer.json`."""
    content = answer.json()
    if not isinstance(content, list) or not all(isinstance(one, str) for one in content):
        raise answer.nonsense("it is not a list of names")
    return frozenset(content)


def verdict(answer: Answer) -> tuple[bool, str]:
    """Return whether a schema may be registered, and the registry's reasons, from {"is_compatible": bool, "messages": […]}.
    Raises the errors of `Answer.json`.
    """
    content = answer.json()
    compatible = content.get("is_compatible") if isinstance(content, dict) else None
    if not isinstance(compatible, bool):
        raise answer.nonsense("it has no is_compatible")
    messages = content.get("messages")
    return compatible, _shown("; ".join(map(str, messages))) if isinstance(messages, list) else ""


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):  # UnicodeDecodeError is one
        return None


def _message(content: Any) -> str:
    told = content.get("message") if isinstance(content, dict) else None
    return _shown(told) if isinstance(told, str) else ""


def _shown(text: str) -> str:
    text = redact(" ".join(text[: 4 * _SHOWN].split()))
    return text if len(text) <= _SHOWN else text[:_SHOWN] + " …"
