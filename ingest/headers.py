"""The headers of a signed request, checked for their form alone."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ingest.errors import InvalidRequest, InvalidSignature, MissingIdempotencyKey, TimestampSkew

KEY_ID = "X-Novel-Key-Id"
TIMESTAMP = "X-Novel-Timestamp"
NONCE = "X-Novel-Nonce"
SIGNATURE = "X-Novel-Signature"
REQUEST_ID = "X-Novel-Request-Id"
IDEMPOTENCY_KEY = "Idempotency-Key"

MAX_SKEW_SECONDS = 300

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_FORMS = {
    KEY_ID: re.compile(r"[!-~]{1,64}"),
    TIMESTAMP: re.compile(r"[0-9]{1,12}"),
    NONCE: re.compile(r"[!-~]{1,128}"),
    SIGNATURE: re.compile(r"[!-~]{1,128}"),
}
_IDEMPOTENCY_KEY = re.compile(r"[!-~]{1,120}")


@dataclass(frozen=True, slots=True)
class Signed:
    key_id: str
    timestamp: str
    nonce: str
    signature: str


def signed(headers: Mapping[str, str]) -> Signed:
    values = {}
    for name, form in _FORMS.items():
        value = headers.get(name)
        if value is None:
            raise InvalidSignature(f"The header {name} is missing.")
        if not form.fullmatch(value):
            if name == TIMESTAMP:
                raise TimestampSkew(f"{TIMESTAMP} must be a time in whole seconds since 1970, in digits.")
            raise InvalidSignature(f"The header {name} is malformed.")
        values[name] = value
    return Signed(values[KEY_ID], values[TIMESTAMP], values[NONCE], values[SIGNATURE])


def check_timestamp(timestamp: str, *, now: float) -> None:
    if abs(int(timestamp) - now) > MAX_SKEW_SECONDS:
        raise TimestampSkew


def request_id(headers: Mapping[str, str]) -> str:
    """The client's id of the request, in lower case."""
    return uuid(headers.get(REQUEST_ID) or "") or _malformed_request_id()


def uuid(text: str) -> str | None:
    return text.lower() if _UUID.fullmatch(text.lower()) else None


def idempotency_key(headers: Mapping[str, str]) -> str:
    key = headers.get(IDEMPOTENCY_KEY)
    if key is None or not _IDEMPOTENCY_KEY.fullmatch(key):
        raise MissingIdempotencyKey
    return key


def _malformed_request_id() -> str:
    raise InvalidRequest(f"The header {REQUEST_ID} must be a UUID, like 2f24b68a-b6d5-41d3-a4e8-33c8b679ab67.")
