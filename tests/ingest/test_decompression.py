"""Compressed bodies: expanded as far as they may be, and no further."""

import gzip
import os
import tracemalloc
import zlib
from collections.abc import Callable

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest import decompression
from ingest.errors import InvalidRequest, UnsupportedEncoding
from runtime.errors import ApiError, PayloadTooLarge
from tests.ingest.bombs import gzip_bomb, zstd_bomb

LIMIT = 1 << 20
MIB = 1 << 20


def zstd(raw: bytes, *, with_size: bool = True) -> bytes:
    return zstandard.ZstdCompressor(write_content_size=with_size).compress(raw)


ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": zstd,
    "zstd without size": lambda raw: zstd(raw, with_size=False),
}


def expand(body: bytes, encoding: str, *, max_bytes: int = LIMIT) -> bytes:
    return bytes(decompression.expand(body, encoding.partition(" ")[0], max_bytes=max_bytes))


@pytest.mark.parametrize(
    ("header", "encoding"),
    [
        *((None, "identity"), ("", "identity"), ("identity", "identity"), ("gzip", "gzip"), ("GZIP", "gzip")),
        *((" zstd ", "zstd"), ("x-gzip", "gzip")),
    ],
)
def test_the_encodings_we_know(header: str | None, encoding: str) -> None:
    assert decompression.encoding_of(header) == encoding


@pytest.mark.parametrize("header", ["br", "deflate", "gzip, gzip", "gzip, zstd", "zip", "gzip;q=1", "none", "\xff"])
def test_no_other_encoding_is_taken(header: str) -> None:
    with pytest.raises(UnsupportedEncoding):
        decompression.encoding_of(header)


@settings(derandomize=True, deadline=None)
@given(st.binary(max_size=5000), st.sampled_from([*ENCODERS]))
def test_what_was_compressed_comes_out_as_it_was(raw: bytes, encoding: str) -> None:
    assert expand(ENCODERS[encoding](raw), encoding) == raw


@pytest.mark.parametrize("encoding", ["identity", *ENCODERS])
def test_a_body_of_exactly_the_limit_is_taken_and_one_byte_more_is_not(encoding: str) -> None:
    encode = ENCODERS.get(encoding, bytes)
    for filler in (bytes, os.urandom):
        assert len(expand(encode(filler(LIMIT)), encoding)) == LIMIT
        with pytest.raises(PayloadTooLarge, match=str(LIMIT)):
            expand(encode(filler(LIMIT + 1)), encoding)


@pytest.mark.parametrize("encoding", [*ENCODERS])
def test_a_body_that_ends_too_early_is_refused_wherever_it_ends(encoding: str) -> None:
    whole = ENCODERS[encoding](os.urandom(300) + bytes(3000))
    for length in range(len(whole)):
        with pytest.raises(InvalidRequest):
            expand(whole[:length], encoding)


@pytest.mark.parametrize("encoding", [*ENCODERS])
@pytest.mark.parametrize(
    "garbage", [b"\0", b"garbage", b'{"source": "a"}', b"\x1f\x8b", b"\x28\xb5\x2f\xfd", bytes(5000)]
)
def test_what_comes_after_the_end_is_refused(encoding: str, garbage: bytes) -> None:
    with pytest.raises(InvalidRequest):
        expand(ENCODERS[encoding](b'{"source": "a"}') + garbage, encoding)


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
@pytest.mark.parametrize(
    "body", [b"", b"{}", b"\0" * 100, zlib.compress(b"{}"), b"\x1f\x8b", b"PK\x03\x04", bytes(range(99))]
)
def test_what_was_never_compressed_is_refused(encoding: str, body: bytes) -> None:
    with pytest.raises(InvalidRequest):
        expand(body, encoding)


@settings(derandomize=True, deadline=None)
@given(st.data(), st.sampled_from([*ENCODERS]))
def test_a_damaged_body_is_refused_or_small(data: st.DataObject, encoding: str) -> None:
    body = bytearray(ENCODERS[encoding](b'{"source": "a", "items": [{}]}' * 20))
    for place in data.draw(st.lists(st.integers(0, len(body) - 1), min_size=1, max_size=5)):
        body[place] = data.draw(st.integers(0, 255))
    try:
        assert len(expand(bytes(body), encoding)) <= LIMIT
    except ApiError as error:
        assert error.status in (400, 413)  # noqa: PT017


def test_a_gzip_body_may_have_several_members_but_not_a_million() -> None:
    assert expand(gzip.compress(b"ab") + gzip.compress(b"") + gzip.compress(b"c"), "gzip") == b"abc"
    members = gzip.compress(b"", 1, mtime=0)
    assert expand(members * decompression.MAX_GZIP_MEMBERS, "gzip") == b""
    for number in (decompression.MAX_GZIP_MEMBERS + 1, 500_000):
        with pytest.raises(InvalidRequest, match="members"):
            expand(members * number, "gzip")


def test_the_limit_counts_all_members_together() -> None:
    half = gzip.compress(bytes(LIMIT // 2))
    assert len(expand(half * 2, "gzip")) == LIMIT
    with pytest.raises(PayloadTooLarge):
        expand(half * 2 + gzip.compress(b"a"), "gzip")


def test_a_zstd_frame_that_lies_about_its_size_is_refused() -> None:
    frame = bytearray(zstd(b"a" * 255))
    assert frame[5] == 255, "the byte that says the size"
    for said in (0, 1, 254):
        frame[5] = said
        try:
            assert len(expand(bytes(frame), "zstd")) <= said
        except ApiError as error:
            assert isinstance(error, InvalidRequest)  # noqa: PT017


def test_the_bombs_of_these_tests_are_what_they_say() -> None:
    assert zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(gzip_bomb(2 * MIB)[:-8]) == bytes(2 * MIB)
    for says_size in (True, False):
        assert expand(zstd_bomb(LIMIT, says_size=says_size), "zstd") == bytes(LIMIT)


@pytest.mark.parametrize(
    ("bomb", "encoding"),
    [
        (gzip_bomb(10 << 30), "gzip"),
        (zstd_bomb(10 << 30, says_size=True), "zstd"),
        (zstd_bomb(10 << 30, says_size=False), "zstd"),
    ],
    ids=["gzip", "zstd", "zstd without size"],
)
def test_a_bomb_of_10_gb_is_expanded_no_further_than_the_limit(bomb: bytes, encoding: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(PayloadTooLarge):
            expand(bomb, encoding)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * MIB + 2 * len(bomb)


def test_a_zstd_bomb_that_says_it_is_small_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        expand(zstd_bomb(10 << 30, says_size=True, said=1000), "zstd")


def test_a_bomb_within_a_bomb_is_opened_once() -> None:
    inner = gzip_bomb(64 * MIB)
    assert expand(gzip.compress(inner), "gzip") == inner
    assert expand(zstd(inner), "zstd") == inner
