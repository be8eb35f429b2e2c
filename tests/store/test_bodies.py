"""How chapter bodies are kept."""

import gzip
import zlib
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store import bodies

ENCODINGS = ("gzip", "zstd", "none")
PROSE = "Nội dung của chương. Đấu Phá Thương Khung.\n".encode() * 300


@settings(derandomize=True, deadline=None)
@given(st.binary(max_size=5000) | st.text(max_size=5000).map(str.encode), st.sampled_from(ENCODINGS))
def test_a_body_comes_out_as_it_went_in(raw: bytes, encoding: str) -> None:
    assert bodies.decompress(bodies.compress(raw, encoding), encoding) == raw


def test_the_same_text_is_the_same_bytes_each_time() -> None:
    for encoding in ENCODINGS:
        assert bodies.compress(PROSE, encoding) == bodies.compress(PROSE, encoding)


def test_prose_becomes_smaller() -> None:
    for encoding in ("gzip", "zstd"):
        assert len(bodies.compress(PROSE, encoding)) < len(PROSE) / 10


def test_gzip_is_what_php_s_gzdecode_reads() -> None:
    """One member, deflated, with nothing before or after it."""
    for raw in (b"", b"a", PROSE, bytes(300_000)):
        stored = bodies.compress(raw, "gzip")
        assert stored[:3] == b"\x1f\x8b\x08"
        assert gzip.decompress(stored) == raw
        member = zlib.decompressobj(16 + zlib.MAX_WBITS)
        assert member.decompress(stored) == raw
        assert (member.eof, member.unused_data) == (True, b"")


def test_bodies_that_others_compressed_are_read() -> None:
    assert bodies.decompress(gzip.compress(PROSE, 9), "gzip") == PROSE


def test_threads_do_not_disturb_each_other() -> None:
    texts = [PROSE + str(number).encode() * number for number in range(200)]

    def there_and_back(raw: bytes) -> bytes:
        return bodies.decompress(bodies.compress(raw, "zstd"), "zstd")

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(there_and_back, texts)) == texts


def test_an_unknown_encoding_is_an_error() -> None:
    with pytest.raises(ValueError, match="unknown encoding 'brotli'"):
        bodies.compress(b"", "brotli")
    with pytest.raises(ValueError, match="unknown encoding 'brotli'"):
        bodies.decompress(b"", "brotli")
