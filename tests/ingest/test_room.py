"""Memory is shared out: who finds no room waits, and nobody fills it alone."""

import asyncio

import pytest

from ingest.room import SMALL_BYTES, Room
from runtime.errors import Unavailable

MB = 1 << 20


async def holding(room: Room, size: int, owner: str | None, until: asyncio.Event, *, wait_seconds: float = 30) -> None:
    async with room.held(size, owner=owner, wait_seconds=wait_seconds):
        await until.wait()


async def test_who_finds_no_room_waits_until_there_is_some() -> None:
    room, done = Room(max_bytes=10 * MB), asyncio.Event()
    first = asyncio.create_task(holding(room, 8 * MB, "a", done))
    await asyncio.sleep(0)
    second = asyncio.create_task(holding(room, 8 * MB, "b", done))
    for _ in range(10):
        await asyncio.sleep(0)
    assert room._held_bytes == 8 * MB
    done.set()
    await asyncio.gather(first, second)
    assert room._held_bytes == 0


async def test_who_waits_too_long_is_told_to_come_back() -> None:
    room, done = Room(max_bytes=10 * MB), asyncio.Event()
    first = asyncio.create_task(holding(room, 8 * MB, "a", done))
    await asyncio.sleep(0)
    with pytest.raises(Unavailable) as refused:
        await holding(room, 8 * MB, "b", done, wait_seconds=0.01)
    assert refused.value.headers["Retry-After"]
    done.set()
    await first
    assert room._held_bytes == 0
    assert not room._of_owner


async def test_one_owner_holds_half_at_most_until_it_is_trusted() -> None:
    room, done = Room(max_bytes=10 * MB), asyncio.Event()
    async with room.held(4 * MB, owner="a", wait_seconds=1) as hold:
        with pytest.raises(Unavailable):
            await holding(room, 4 * MB, "a", done, wait_seconds=0.01)
        async with room.held(4 * MB, owner="b", wait_seconds=1):
            pass
        await hold.trust()
        async with room.held(4 * MB, owner="a", wait_seconds=1):
            assert room._held_bytes == 8 * MB
    assert room._held_bytes == 0
    assert not room._of_owner


async def test_the_small_need_no_room() -> None:
    room = Room(max_bytes=MB)
    async with room.held(MB, wait_seconds=1), room.held(SMALL_BYTES, wait_seconds=1), room.held(0, wait_seconds=1):
        assert room._held_bytes == MB


async def test_one_that_is_larger_than_the_room_gets_all_of_it() -> None:
    room = Room(max_bytes=MB)
    async with room.held(50 * MB, wait_seconds=1):
        assert room._held_bytes == MB


async def test_what_turns_out_smaller_gives_room_to_others() -> None:
    room, done = Room(max_bytes=10 * MB), asyncio.Event()
    async with room.held(10 * MB, wait_seconds=1) as hold:
        other = asyncio.create_task(holding(room, 5 * MB, None, done))
        await asyncio.sleep(0)
        await hold.shrink(MB)
        done.set()
        await other
    assert room._held_bytes == 0


async def test_who_is_cancelled_while_waiting_leaves_nothing_behind() -> None:
    room, done = Room(max_bytes=MB), asyncio.Event()
    async with room.held(MB, wait_seconds=1):
        waiting = asyncio.create_task(holding(room, MB, "a", done))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert room._held_bytes == 0
    assert not room._of_owner
