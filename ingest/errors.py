"""Everything the door can refuse with. The docstring is what the client reads; §7.4 has the codes, §18 the statuses."""

from typing import Any

from runtime.errors import ApiError, Unavailable


class HttpsRequired(ApiError):
    """Ingest is only served over HTTPS. Use the https:// address of this service."""

    status, code = 403, "https_required"


class AddressNotAllowed(ApiError):
    """Requests from this address are not allowed here. Ask the operator to add it to the allowlist."""

    status, code = 403, "address_not_allowed"


class InvalidSignature(ApiError):
    """The key is unknown or the signature does not match the request."""

    status, code = 401, "invalid_signature"


class TimestampSkew(ApiError):
    """X-Novel-Timestamp is more than 300 seconds away from the server's time. Set the clock, and sign again."""

    status, code = 401, "timestamp_skew"


class NonceReplay(ApiError):
    """This nonce was used before. Sign again with a new one."""

    status, code = 401, "nonce_replay"


class KeyInactive(ApiError):
    """This key was revoked or has expired. Ask the operator for a new one."""

    status, code = 403, "key_inactive"


class PermissionDenied(ApiError):
    """This key may not do that."""

    status, code = 403, "permission_denied"


class MissingIdempotencyKey(ApiError):
    """The header Idempotency-Key is missing or not made of 1 to 120 visible ASCII characters."""

    status, code = 400, "missing_idempotency_key"


class InvalidRequest(ApiError):
    """The request is not well-formed."""

    status, code = 400, "invalid_schema"


class InvalidSchema(ApiError):
    """The body does not have the form that this address takes."""

    status, code = 422, "invalid_schema"


class UnsupportedEncoding(ApiError):
    """The body's Content-Encoding is not one of gzip, zstd or identity."""

    status, code = 415, "unsupported_encoding"


class BodyTooSlow(ApiError):
    """The request body took too long to arrive."""

    status, code = 408, "request_timeout"


class RateLimited(ApiError):
    """Too many requests. Try again after the seconds in Retry-After."""

    status, code = 429, "rate_limited"

    def __init__(self, message: str | None = None, *, retry_after_seconds: int, details: Any = None) -> None:
        super().__init__(message, details=details, headers={"Retry-After": str(retry_after_seconds)})


class IdempotencyConflict(ApiError):
    """This Idempotency-Key was used for another payload. Use a new key for a new payload."""

    status, code = 409, "idempotency_conflict"


class QueueFull(Unavailable):
    """The queue is full for now. Try again after the seconds in Retry-After."""

    code = "queue_full"
