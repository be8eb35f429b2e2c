"""Views and reads are counted in Redis and reach the tables, each exactly once, wherever a flush is cut off."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any
from uuid import UUID

import pytest
import redis as plain_redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from runtime import settings as service_settings
from runtime.settings import Settings
from schema.connection import Connection as PlainConnection
from store import errors, view_counters
from store.connection import Connection
from store.pool import Pool
from store.redis_link import RedisLink
from store.upkeep import TurnLost
from store.view_counters import MAX_ID, Counts, Flushed
from tests.store.counted_stories import Reads, make_stories
from tests.store.flushing import (
    STEPS,
    CutPool,
    Killed,
    LossyLink,
    chapters_of,
    dying,
    flush,
    left,
    remove_counters,
    stored,
    take,
)


@pytest.fixture
def redis(test_settings: Settings) -> Iterator["plain_redis.Redis"]:
    """Plain access to the Redis of the tests, without counters before and after."""
    assert test_settings.redis.address is not None
    client = plain_redis.Redis.from_url(test_settings.redis.address.url)
    remove_counters(client)
    yield client
    remove_counters(client)
    client.close()


@pytest.fixture
async def link(test_settings: Settings) -> AsyncIterator[RedisLink]:
    link = RedisLink(test_settings.redis)
    yield link
    await link.close()


async def test_views_and_reads_are_added_to_what_was_there(
    pool: Pool, conn: PlainConnection, redis: "plain_redis.Redis", link: RedisLink
) -> None:
    stories = make_stories(conn, 2)
    chapters = chapters_of(conn, stories)
    conn.execute("UPDATE wp_novel_stories SET view_count = 100")
    redis.incrby(f"novel:views:{stories[0]}", 7)
    redis.incrby(f"novel:reads:{chapters[1]}", 5)
    assert (await flush(pool, link, await take(pool, conn))).counters == 2
    assert stored(conn, stories) == [(107, 0), (100, 5)]
    assert left(redis) == set()
    assert (await flush(pool, link, await take(pool, conn))).counters == 0
    assert stored(conn, stories) == [(107, 0), (100, 5)]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", STEPS)
async def test_a_process_may_die_between_any_two_steps(
    pool: Pool, conn: PlainConnection, redis: "plain_redis.Redis", link: RedisLink, step: str, after: bool
) -> None:
    stories = make_stories(conn, 1)
    for views in (3, 4):
        redis.incrby(f"novel:views:{stories[0]}", views)
        with pytest.MonkeyPatch.context() as patch:
            dying(patch, step, after=after)
            with pytest.raises(Killed):  # the second time at what the first one left
                await flush(pool, link, await take(pool, conn))
    await flush(pool, link, await take(pool, conn))
    assert stored(conn, stories) == [(7, 0)]
    assert left(redis) == set()


@pytest.mark.parametrize("error", [Killed(), errors.CommitUncertain("lost")], ids=["killed", "uncertain"])
async def test_what_was_committed_without_a_word_is_not_written_again(
    pool: Pool, conn: PlainConnection, redis: "plain_redis.Redis", link: RedisLink, error: Exception
) -> None:
    stories = make_stories(conn, 1)
    redis.incrby(f"novel:views:{stories[0]}", 3)
    with pytest.raises(type(error)):
        await view_counters.flush(CutPool(pool, error), link, await take(pool, conn), may_go_on=lambda: True)  # type: ignore[arg-type]
    assert stored(conn, stories) == [(3, 0)]
    redis.incrby(f"novel:views:{stories[0]}", 4)
    await flush(pool, link, await take(pool, conn))
    assert stored(conn, stories) == [(7, 0)]


@pytest.mark.parametrize("is_left", [False, True], ids=["and comes back", "and away again"])
@pytest.mark.parametrize("is_done", [False, True], ids=["not heard", "no answer"])
async def test_redis_may_go_away_at_any_command(
    pool: Pool, conn: PlainConnection, redis: "plain_redis.Redis", link: RedisLink, is_done: bool, is_left: bool
) -> None:
    stories = make_stories(conn, 1)
    total, lost, was_lost = 0, 0, True
    while was_lost:
        lost += 1
        redis.incrby(f"novel:views:{stories[0]}", lost)
        total += lost
        lossy = LossyLink(link, lost, is_done=is_done)
        await flush(pool, lossy, await take(pool, conn))
        was_lost = lossy.asked >= lost
        if not is_left:
            await flush(pool, link, await take(pool, conn))
            assert stored(conn, stories) == [(total, 0)]
    assert lost > 5
    await flush(pool, link, await take(pool, conn))
    assert stored(conn, stories) == [(total, 0)]
    assert left(redis) == set()


ACTIONS = st.lists(
    st.tuples(st.just("count"), st.integers(0, 3), st.integers(1, 5))
    | st.tuples(st.just("flush"), st.none(), st.none())
    | st.tuples(st.just("killed"), st.sampled_from(STEPS), st.tuples(st.booleans(), st.integers(1, 2)))
    | st.tuples(st.just("lost"), st.integers(1, 7), st.booleans())
    | st.tuples(st.just("unheard"), st.none(), st.none()),
    max_size=14,
)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(actions=ACTIONS)
async def test_whatever_dies_each_view_is_counted_exactly_once(
    pool: Pool, conn: PlainConnection, redis: "plain_redis.Redis", link: RedisLink, actions: list[tuple[str, Any, Any]]
) -> None:
    stories = make_stories(conn, 2)
    chapters = chapters_of(conn, stories)
    names = [f"novel:views:{stories[0]}", f"novel:views:{stories[1]}"]
    names += [f"novel:reads:{chapters[0]}", f"novel:reads:{chapters[1]}"]
    counted = [0, 0, 0, 0]
    for action, what, how in actions:
        if action == "count":
            redis.incrby(names[what], how)
            counted[what] += how
            continue
        turn = await take(pool, conn)
        with pytest.MonkeyPatch.context() as patch:
            try:
                if action == "killed":
                    dying(patch, what, after=how[0], at=how[1])
                if action == "unheard":
                    cut: Any = CutPool(pool, Killed())
                    await view_counters.flush(cut, link, turn, may_go_on=lambda: True)
                else:
                    await flush(pool, LossyLink(link, what, is_done=how) if action == "lost" else link, turn)
            except Killed:
                pass
        now = stored(conn, stories)
        assert all(
            some <= most for some, most in zip((now[0][0], now[1][0], now[0][1], now[1][1]), counted, strict=True)
        )
    await flush(pool, link, await take(pool, conn))
    assert stored(conn, stories) == [(counted[0], counted[2]), (counted[1], counted[3])]
    assert left(redis) == set()


@pytest.mark.parametrize("step", ["scan", "move", "read", "forget"])
async def test_a_process_that_was_stopped_and_wakes_after_its_turn_counts_nothing_twice(
    pool: Pool, conn: PlainConnection, redis: "plain_redis.Redis", link: RedisLink, step: str
) -> None:
    stories = make_stories(conn, 1)
    redis.incrby(f"novel:views:{stories[0]}", 3)
    stopped, awake, real = asyncio.Event(), asyncio.Event(), getattr(view_counters, step)

    async def stopping(*arguments: Any) -> Any:
        if not stopped.is_set():
            stopped.set()
            await awake.wait()
        return await real(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(view_counters, step, stopping)
        late = asyncio.create_task(flush(pool, link, await take(pool, conn)))
        await stopped.wait()
        redis.incrby(f"novel:views:{stories[0]}", 4)
        await flush(pool, link, await take(pool, conn))
        redis.incrby(f"novel:views:{stories[0]}", 5)
        awake.set()
        with pytest.raises(TurnLost):
            await late
    assert stored(conn, stories) == [(7, 0)]
    await flush(pool, link, await take(pool, conn))
    assert stored(conn, stories) == [(12, 0)]
    assert left(redis) == set()


@pytest.mark.parametrize("comes_first", [False, True])
async def test_one_that_wakes_beside_a_flush_that_was_written_and_left_does_not_have_it_written_again(
    pool: Pool, conn: PlainConnection, redis: "plain_redis.Redis", link: RedisLink, comes_first: bool
) -> None:
    stories = make_stories(conn, 1)
    name = f"novel:views:{stories[0]}"
    ids = [UUID(int=number) for number in ((2, 1) if comes_first else (1, 2))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uuid, "uuid4", lambda: ids.pop(0))
        redis.incrby(name, 3)
        with pytest.MonkeyPatch.context() as dies:
            dying(dies, "forget", after=False)
            with pytest.raises(Killed):
                await flush(pool, link, await take(pool, conn))
        redis.incrby(name, 4)
        await view_counters.move(link, [name.encode()])  # the last that the late one could do
    await flush(pool, link, await take(pool, conn))
    assert stored(conn, stories) == [(7, 0)]
    assert left(redis) == set()


async def test_what_is_counted_during_a_flush_is_kept_for_the_next(
    pool: Pool, conn: PlainConnection, redis: "plain_redis.Redis", link: RedisLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    stories = make_stories(conn, 1)
    name, real = f"novel:views:{stories[0]}", view_counters.read

    async def read(link: RedisLink, flush_id: str) -> Counts:
        redis.incrby(name, 10)
        return await real(link, flush_id)

    monkeypatch.setattr(view_counters, "read", read)
    redis.incrby(name, 1)
    await flush(pool, link, await take(pool, conn))
    assert (stored(conn, stories), redis.get(name)) == ([(1, 0)], b"10")


async def test_a_flush_that_has_to_end_early_goes_on_in_the_next_turn(
    pool: Pool, conn: PlainConnection, redis: "plain_redis.Redis", link: RedisLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view_counters, "FLUSH_COUNTERS", 3)
    monkeypatch.setattr(view_counters, "SCAN_KEYS", 5)
    stories = make_stories(conn, 40)
    for story_id in stories:
        redis.incrby(f"novel:views:{story_id}", 2)
    early = await view_counters.flush(pool, link, await take(pool, conn), may_go_on=lambda: False)
    assert not early.is_done  # a scan may find nothing in its first step, but not everything
    rest = await flush(pool, link, await take(pool, conn))
    assert rest.is_done
    assert early.counters + rest.counters == 40
    assert stored(conn, stories) == [(2, 0)] * 40


# -- what is no counter ---------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["abc", "", "-5", "1.5", " 7", "7\n", "0x10", "9" * 13, "9" * 40, "٣"], ids=repr)
async def test_a_value_that_no_count_makes_is_dropped_and_named(
    pool: Pool, conn: PlainConnection, redis: "plain_redis.Redis", link: RedisLink, value: str
) -> None:
    stories = make_stories(conn, 2)
    redis.set(f"novel:views:{stories[0]}", value)
    redis.incr(f"novel:views:{stories[1]}")
    with capture_logs() as logs:
        await flush(pool, link, await take(pool, conn))
    assert stored(conn, stories) == [(0, 0), (1, 0)]
    (warning,) = [log for log in logs if log["event"] == "view_counters.dropped"]
    assert str(stories[0]) in warning["names"][0]
    assert left(redis) == set()


async def test_what_is_no_number_at_all_is_dropped(
    pool: Pool, conn: PlainConnection, redis: "plain_redis.Redis", link: RedisLink
) -> None:
    stories = make_stories(conn, 3)
    redis.lpush(f"novel:views:{stories[0]}", "1")
    redis.hset(f"novel:views:{stories[1]}", "1", "1")
    redis.set(f"novel:views:{stories[2]}", "0")
    await flush(pool, link, await take(pool, conn))
    assert (stored(conn, stories), left(redis)) == ([(0, 0)] * 3, set())


@pytest.mark.parametrize("number", ["", "0", "01", "-1", "abc", "1 ", "1\n", "18446744073709551616", "\xff", "1:2"])
async def test_a_name_that_counts_nothing_is_removed_and_another_ones_key_is_left_alone(
    pool: Pool, conn: PlainConnection, redis: "plain_redis.Redis", link: RedisLink, number: str
) -> None:
    stories = make_stories(conn, 1)
    redis.incr(b"novel:views:" + number.encode("latin-1"))
    redis.incr("novel:vieds:1")
    redis.incr(f"novel:views:{stories[0]}")
    with capture_logs() as logs:
        await flush(pool, link, await take(pool, conn))
    assert stored(conn, stories) == [(1, 0)]
    assert left(redis) == {"novel:vieds:1"}
    assert [log["count"] for log in logs if log["event"] == "view_counters.dropped"] == [1]


async def test_what_was_counted_of_a_story_that_does_not_exist_is_gone(
    pool: Pool, conn: PlainConnection, redis: "plain_redis.Redis", link: RedisLink
) -> None:
    stories = make_stories(conn, 1)
    for number in (stories[0] + 1000, MAX_ID, stories[0]):
        redis.incrby(f"novel:views:{number}", 10**12 - 1)
        redis.incr(f"novel:reads:{number + 1 if number < MAX_ID else number}")
    await flush(pool, link, await take(pool, conn))
    assert stored(conn, stories)[0][0] == 10**12 - 1
    assert left(redis) == set()


@pytest.mark.parametrize("member", [b"\xff", b"", b"x" * 300, b"not-one-of-ours"], ids=repr)
async def test_a_strange_entry_in_the_list_of_flushes_stops_nothing(
    pool: Pool, conn: PlainConnection, redis: "plain_redis.Redis", link: RedisLink, member: bytes
) -> None:
    stories = make_stories(conn, 1)
    redis.sadd("novel:flushes", member)
    redis.incr(f"novel:views:{stories[0]}")
    await flush(pool, link, await take(pool, conn))
    assert (stored(conn, stories), left(redis)) == ([(1, 0)], set())


async def test_a_flush_whose_hash_was_damaged_stops_nothing(
    pool: Pool, conn: PlainConnection, redis: "plain_redis.Redis", link: RedisLink
) -> None:
    stories = make_stories(conn, 2)
    redis.incr(f"novel:views:{stories[0]}")
    flush_id = await view_counters.move(link, [f"novel:views:{stories[0]}".encode()])
    fields: dict[Any, Any] = {
        "x": "1",
        f"novel:views:{stories[1]}": "9" * 40,
        "novel:reads:1": "abc",
        "novel:views:0": "3",
    }
    redis.hset(f"novel:flush:{flush_id}", mapping=fields)
    await flush(pool, link, await take(pool, conn))
    assert (stored(conn, stories), left(redis)) == ([(1, 0), (0, 0)], set())


# -- without Redis --------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["", "redis://127.0.0.1:1/0"], ids=["not configured", "away"])
async def test_without_redis_nothing_is_written_and_nothing_fails(pool: Pool, conn: PlainConnection, url: str) -> None:
    link = RedisLink(service_settings.load({"NOVEL_REDIS_URL": url} if url else {}).redis)
    turn = await take(pool, conn)
    assert await flush(pool, link, turn) == Flushed(0, turn.place, True)
    await link.close()


async def test_counts_are_added_by_the_points_of_their_ids(pool: Pool, conn: PlainConnection) -> None:
    stories = make_stories(conn, 300)

    async def work(inside: Connection) -> None:
        async with Reads(inside) as reads:
            await view_counters.add(inside, Counts(views={stories[5]: 1, stories[250]: 2}))
        assert reads.entries == 0
        assert reads.rows <= 10

    await pool.transaction(work)
    assert [stored(conn, [stories[place]]) for place in (5, 250, 6)] == [[(1, 0)], [(2, 0)], [(0, 0)]]
