"""The ingest service of a benchmark: started, pushed to, measured, gone again."""

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from loadtests.bench import batches, door, measuring, process_memory, queue_tables, registry
from loadtests.bench.batches import JSON
from loadtests.bench.case import Bench, Bounded, Case, Step
from loadtests.bench.cases import ingest_door, ingest_loop, ingest_memory, payload_layout
from loadtests.bench.door import Door
from loadtests.bench.measuring import Pace
from loadtests.bench.result import Result
from loadtests.catalogue.sizes import QUICK
from runtime.problems import Problem
from runtime.settings import RedisSettings, Settings
from schema.connection import Connection
from store.pool import Pool
from tests.processes import processes_of

AT_ONCE = Pace(rounds=1, sample_seconds=0, warm_up_seconds=0, is_quick=True)


@pytest.fixture
def bench(test_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """On the tests' database, in a folder of its own, as a benchmark is in the one it is called in."""
    (tmp_path / ".local/bench").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for variable in [name for name in os.environ if name.startswith("NOVEL_")]:
        monkeypatch.delenv(variable)
    return Bench(test_settings, QUICK)


@pytest.fixture
def served(bench: Bench) -> Iterator[Door]:
    with queue_tables.owned(bench), door.opened(bench) as served:
        yield served


def steps() -> tuple[list[int], Step]:
    heard: list[int] = []
    return heard, heard.append


# -- the service -----------------------------------------------------------------------------------------


def test_the_same_batch_is_taken_again_and_again_each_time_as_a_new_one(served: Door, conn: Connection) -> None:
    (batch,) = batches.prepared(batches.texts()[:3], JSON, count=1)
    with served.client() as client:
        assert [client.push(batch), client.push(batch)] == [3, 3]
    assert conn.fetch_all("SELECT key_id, accepted_items FROM wp_novel_ingest_requests") == [(served.key_id, 3)] * 2
    assert conn.fetch_all("SELECT COUNT(*) FROM wp_novel_ingest_jobs") == [(6,)]


def test_every_form_is_taken(served: Door, conn: Connection) -> None:
    with served.client() as client:
        for form in batches.FORMS:
            (batch,) = batches.prepared(batches.texts()[:3], form, count=1)
            assert client.push(batch) == 3
    # However it was written and sent, the same text is kept.
    assert conn.fetch_all("SELECT COUNT(*), COUNT(DISTINCT payload_hash) FROM wp_novel_ingest_jobs") == [(12, 3)]


def test_it_is_gone_in_the_end(bench: Bench) -> None:
    with queue_tables.owned(bench), door.opened(bench) as served:
        os.kill(served.pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(served.pid, 0)


def test_without_a_redis_it_gets_one_of_its_own(bench: Bench, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = scratch / "bench-door"
    (directory / ".local/bench").mkdir(parents=True)
    monkeypatch.chdir(directory)
    without = replace(bench, settings=replace(bench.settings, redis=RedisSettings()))
    with queue_tables.owned(without), door.opened(without) as served, served.client() as client:
        assert b'"redis":{"ok":true' in client.get("/readyz")
        assert len(processes_of(directory)) >= 1
    assert processes_of(directory) == []


def test_a_refused_batch_is_a_problem_that_says_why(served: Door) -> None:
    (batch,) = batches.prepared(batches.texts()[:3], JSON, count=1)
    with served.client() as client, pytest.raises(Problem, match=r"with 401: .*invalid_signature"):
        client.push(replace(batch, sha256="0" * 64))


def test_a_service_that_died_is_a_problem_in_one_line(served: Door) -> None:
    (batch,) = batches.prepared(batches.texts()[:3], JSON, count=1)
    with served.client() as client:
        client.push(batch)
        os.kill(served.pid, signal.SIGKILL)
        served.child.process.wait()
        with pytest.raises(Problem) as problem:
            client.push(batch)
    assert str(problem.value).startswith("the ingest service gave no answer (")
    assert str(problem.value).endswith("Its log is .local/bench/ingest.log.")


def test_a_service_that_cannot_start_is_a_problem(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOVEL_LOG_LEVEL", "loud")
    with (
        queue_tables.owned(bench),
        pytest.raises(Problem, match=r"the ingest service ended at its start(.|\n)*NOVEL_LOG_LEVEL"),
        door.opened(bench),
    ):
        pytest.fail("it runs")


# -- the cases, once through -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ingest.door", "ingest.door_of_fastest", "ingest.payload_layout"])
async def test_a_comparison_measures_both_sides_and_leaves_nothing(name: str, bench: Bench, conn: Connection) -> None:
    (case,) = registry.chosen([name], quick=True)
    heard, step = steps()
    result = await measuring.measure_any(case, bench, AT_ONCE, step=step)
    assert isinstance(result, Result)
    assert result.ours > 0
    assert result.bare > 0
    assert sum(heard) == 2
    assert conn.fetch_all("SELECT COUNT(*) FROM wp_novel_ingest_jobs") == [(0,)]
    assert conn.fetch_all("SHOW TABLES LIKE '%%bench%%'") == []


async def test_the_loop_is_watched_with_and_without_batches(bench: Bench) -> None:
    heard, step = steps()
    reading = await ingest_loop.measure(bench, times=2, step=step, form=JSON)
    assert reading.base == sum(heard) == 2
    assert reading.figure >= 0
    beside, without = reading.notes
    assert beside.startswith("beside batches: ")
    assert without.startswith("without batches: ")
    assert "the slowest of 0 /healthz" not in beside + without


async def test_the_peak_of_memory_holds_the_body_at_least(bench: Bench) -> None:
    heard, step = steps()
    reading = await ingest_memory.measure_peak(bench, times=2, step=step, form=JSON)
    assert 1 < reading.figure / reading.base < 50
    assert sum(heard) == 2
    assert "MB before" in reading.notes[0]


async def test_growth_is_from_the_first_tenth_to_the_end(bench: Bench) -> None:
    heard, step = steps()
    reading = await ingest_memory.measure_growth(bench, times=12, step=step)
    assert sum(heard) == 12
    assert "after 10 batches" in reading.notes[0]
    assert "after 12." in reading.notes[0]


# -- parts -----------------------------------------------------------------------------------------------


def test_delays_are_counted_from_the_histogram() -> None:
    metrics = (
        "# TYPE novel_event_loop_delay_seconds histogram\n"
        'novel_event_loop_delay_seconds_bucket{le="0.02"} 90.0\n'
        'novel_event_loop_delay_seconds_bucket{le="0.05"} 97.0\n'
        'novel_event_loop_delay_seconds_bucket{le="+Inf"} 100.0\n'
        "novel_event_loop_delay_seconds_count 100.0\n"
    )
    assert ingest_loop.delays(metrics, over=0.05) == 3
    assert ingest_loop.delays(metrics, over=0.02) == 10


def test_a_peak_is_seen_after_it_is_over_until_it_is_forgotten() -> None:
    pid, size = os.getpid(), 64 << 20
    process_memory.forget_peak(pid)
    before = process_memory.resident_bytes(pid)
    large = b"x" * size
    assert process_memory.resident_bytes(pid) > before + size // 2
    del large
    assert process_memory.peak_bytes(pid) > before + size // 2
    process_memory.forget_peak(pid)
    assert process_memory.peak_bytes(pid) < before + size // 2


def test_bare_rows_hold_the_same_texts() -> None:
    ((_, rows),) = next(ingest_door.rows(ingest_door.raw, "none"))
    assert [row[5].decode() for row in rows] == list(batches.texts())
    assert sum(map(len, ingest_door.compressed())) < sum(map(len, ingest_door.raw())) / 2


async def test_both_layouts_keep_every_item(pool: Pool, conn: Connection) -> None:
    for number, write in enumerate((payload_layout.blob_per_batch(), payload_layout.json_per_item())):
        await pool.transaction(partial(write, request_id=f"request-{number}"))
    blob, inline = conn.fetch_all(
        "SELECT request_id, payload_storage, COUNT(*), COUNT(DISTINCT external_ref) FROM wp_novel_ingest_jobs"
        " GROUP BY 1, 2 ORDER BY 1"
    )
    assert blob == ("request-0", "blob", 300, 300)
    assert inline == ("request-1", "inline", 300, 300)
    texts = conn.fetch_all(
        "SELECT payload_inline_json FROM wp_novel_ingest_jobs WHERE request_id = 'request-1' ORDER BY item_index"
    )
    assert [json.loads(text)["content_raw"] for (text,) in texts] == list(batches.texts())


def test_what_is_bounded_has_a_bound_and_what_is_compared_a_name_of_its_own() -> None:
    ingest = registry.chosen(["ingest"], quick=False)
    assert {case.name: case.at_most for case in ingest if isinstance(case, Bounded)} == {
        **{f"ingest.loop.{form.name}": 0.0 for form in batches.FORMS},
        **{f"ingest.memory.{form.name}": 6.0 for form in batches.FORMS},
        "ingest.memory.growth": 1.0,
    }
    assert {case.name: case.target for case in ingest if isinstance(case, Case)} == {
        "ingest.door": 0.6,
        "ingest.door_zstd": None,
        "ingest.door_escaped": None,
        "ingest.door_of_fastest": None,
        "ingest.payload_layout": 1.0,
    }
