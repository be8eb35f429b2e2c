"""Small bodies that expand to as many zeros as one likes, made without compressing them."""

import struct
import zlib

MIB = 1 << 20
BLOCK = 128 << 10
_GZIP_HEAD = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
_RLE, _LAST = 1 << 1, 1


def gzip_bomb(size: int) -> bytes:
    """Of whole MiB; its checksum is wrong, which only who expands all of it can know."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    piece = compressor.compress(bytes(MIB)) + compressor.flush(zlib.Z_FULL_FLUSH)
    end = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS).flush()
    return _GZIP_HEAD + piece * (size // MIB) + end + struct.pack("<II", 0, size & 0xFFFFFFFF)


def zstd_bomb(size: int, *, says_size: bool, said: int | None = None) -> bytes:
    """One frame of blocks that repeat a zero 128 Ki times; it may also lie about its size."""
    window_of_2_mib = b"\x58"
    head = (b"\xc0" + window_of_2_mib + struct.pack("<Q", said or size)) if says_size else b"\0" + window_of_2_mib
    block = _zstd_block(BLOCK, is_last=False)
    return b"\x28\xb5\x2f\xfd" + head + block * (size // BLOCK - 1) + _zstd_block(BLOCK, is_last=True)


def _zstd_block(size: int, *, is_last: bool) -> bytes:
    return struct.pack("<I", size << 3 | _RLE | (_LAST if is_last else 0))[:3] + b"\0"
