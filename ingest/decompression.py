"""Bodies that come compressed, expanded no further than they may be: a bomb costs no more than an honest batch."""

import zlib

import zstandard
from isal import isal_zlib

from ingest.errors import InvalidRequest, UnsupportedEncoding
from runtime.errors import PayloadTooLarge

ENCODINGS = ("identity", "gzip", "zstd")
# Each costs a copy of what is left, and one is what honest clients send.
MAX_GZIP_MEMBERS = 64
SCRAP_BYTES = 256 << 10


def encoding_of(header: str | None) -> str:
    """The one encoding a body has, by its Content-Encoding."""
    name = (header or "identity").strip().lower()
    name = {"x-gzip": "gzip", "": "identity"}.get(name, name)
    if name not in ENCODINGS:
        raise UnsupportedEncoding
    return name


def bound(body: bytes | bytearray, encoding: str, *, max_bytes: int) -> int:
    """The most that a body can expand to, in memory of its own."""
    if encoding == "identity":
        return 0
    try:
        declared = zstandard.frame_content_size(body) if encoding == "zstd" else -1
    except zstandard.ZstdError:
        return 0  # it will be refused
    return max_bytes if declared < 0 else min(declared, max_bytes)


def expand(body: bytes | bytearray, encoding: str, *, max_bytes: int) -> bytes | bytearray:
    match encoding:
        case "gzip":
            body = _gzip(body, max_bytes)
        case "zstd":
            body = _zstd(body, max_bytes)
    if len(body) > max_bytes:
        raise too_large(max_bytes)
    return body


def too_large(max_bytes: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"The batch is larger than {max_bytes} bytes. Send it in several.")


def _gzip(body: bytes | bytearray, max_bytes: int) -> bytes:
    pieces: list[bytes] = []
    size = 0
    rest = bytes(body)
    while rest:  # a gzip file may have several members
        if len(pieces) == MAX_GZIP_MEMBERS:
            raise InvalidRequest(f"The gzip body has more than {MAX_GZIP_MEMBERS} members.")
        member = isal_zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        try:
            piece = member.decompress(rest, max_bytes - size + 1)
        except isal_zlib.error:  # type: ignore[misc]
            raise InvalidRequest("The body is not valid gzip.") from None
        pieces.append(piece)
        size += len(piece)
        if size > max_bytes:
            raise too_large(max_bytes)
        if not member.eof:
            raise InvalidRequest("The gzip body ends too early.")
        rest = member.unused_data
    if not pieces:
        raise InvalidRequest("The gzip body is empty.")
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _zstd(body: bytes | bytearray, max_bytes: int) -> bytes:
    try:
        size = zstandard.frame_content_size(body)
        if size < 0:
            return _zstd_of_unknown_size(body, max_bytes)
        if size > max_bytes:  # it says so itself: nothing has to be expanded to know
            raise too_large(max_bytes)
        return zstandard.ZstdDecompressor().decompress(body, allow_extra_data=False)
    except zstandard.ZstdError:
        raise InvalidRequest("The body is not one whole zstd frame.") from None


def _zstd_of_unknown_size(body: bytes | bytearray, max_bytes: int) -> bytes:
    """Expanded twice: first into a scrap, to see how much it is. Only the second way tells where the frame ends."""
    scrap = bytearray(SCRAP_BYTES)
    size = 0
    with zstandard.ZstdDecompressor().stream_reader(body) as reader:
        while piece := reader.readinto(scrap):
            size += piece
            if size > max_bytes:
                raise too_large(max_bytes)
    frame = zstandard.ZstdDecompressor().decompressobj()
    expanded = frame.decompress(body)
    if not frame.eof or frame.unused_data:
        raise zstandard.ZstdError("the body and the frame do not end together")
    return expanded
