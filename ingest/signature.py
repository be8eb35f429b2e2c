"""The signature of a request: HMAC-SHA256 over method, path, time, nonce and the body's hash. Pure; clients use it too.

The body is hashed as it is sent, so compressed when it is compressed. The path is the route's, without query or host.
"""

import hashlib
import hmac


def base_string(method: str, path: str, timestamp: str, nonce: str, body_sha256: str) -> str:
    return f"{method.upper()}.{path}.{timestamp}.{nonce}.{body_sha256}"


def sign(secret: str, *, method: str, path: str, timestamp: str, nonce: str, body_sha256: str) -> str:
    """The signature, in lower-case hexadecimal; `body_sha256` is in hexadecimal too."""
    base = base_string(method, path, timestamp, nonce, body_sha256)
    return hmac.new(secret.encode(), base.encode(), hashlib.sha256).hexdigest()


def matches(given: str, expected: str) -> bool:
    """Whether two signatures are the same, in a time that does not tell where they differ."""
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), expected.encode())
