"""The queue that benchmarks fill: theirs alone, and empty after them."""

import pytest

from loadtests.bench import queue_tables
from loadtests.bench.case import Bench
from loadtests.catalogue.sizes import QUICK
from runtime.problems import Problem
from runtime.settings import Settings
from schema.connection import Connection
from store import api_keys
from tests.conftest import MASTER_KEY

TABLES = (
    "wp_novel_ingest_requests",
    "wp_novel_ingest_jobs",
    "wp_novel_ingest_payload_blobs",
    "wp_novel_ingest_ready",
    "wp_novel_nonce_replay",
)


@pytest.fixture
def bench(test_settings: Settings) -> Bench:
    return Bench(test_settings, QUICK)


def make_key(conn: Connection, name: str) -> str:
    key_id, _ = api_keys.create(
        conn, name=name, permissions=("ingest:chapters",), master_key=MASTER_KEY, operator="tester"
    )
    return key_id


def fill(conn: Connection, key_id: str) -> None:
    conn.execute(
        "INSERT INTO wp_novel_ingest_requests (request_id, source, job_type, idempotency_key, key_id, created_at,"
        " updated_at) VALUES (UUID(), 'a', 'chapters_bulk', 'k', %s, NOW(), NOW())",
        (key_id,),
    )
    conn.execute(
        "INSERT INTO wp_novel_ingest_jobs (job_type, source, request_id, idempotency_key, external_ref, payload_hash,"
        " next_run_at, created_at, updated_at) VALUES ('chapters_bulk', 'a', UUID(), 'k', 'r', '', NOW(), NOW(), NOW())"
    )
    conn.execute(
        "INSERT INTO wp_novel_ingest_payload_blobs (payload_blob, payload_hash, payload_size_bytes, created_at,"
        " expires_at) VALUES ('', '', 0, NOW(), NOW())"
    )
    conn.execute(
        "INSERT INTO wp_novel_ingest_ready (job_type, source, request_id, first_item, last_item, next_run_at,"
        " created_at) VALUES ('chapters_bulk', 'a', UUID(), 0, 0, NOW(), NOW())"
    )
    conn.execute("INSERT INTO wp_novel_nonce_replay (nonce_hash, key_id, expires_at) VALUES ('', '', NOW())")


def counts(conn: Connection) -> list[int]:
    return [conn.fetch_all(f"SELECT COUNT(*) FROM {table}")[0][0] for table in TABLES]


def test_it_is_emptied_when_asked_and_in_the_end(bench: Bench, conn: Connection) -> None:
    with queue_tables.owned(bench) as empty:
        key_id = make_key(conn, queue_tables.KEY_NAME)
        fill(conn, key_id)
        assert counts(conn) == [1] * 5
        empty()
        assert counts(conn) == [0] * 5
        assert [key.key_id for key in api_keys.every(conn)] == [key_id]  # which the service goes on using
        fill(conn, key_id)
    assert counts(conn) == [0] * 5
    assert api_keys.every(conn) == []
    assert conn.fetch_all("SELECT key_id FROM wp_novel_api_key_terms") == []


def test_what_a_killed_run_left_is_cleared_away(bench: Bench, conn: Connection) -> None:
    fill(conn, make_key(conn, queue_tables.KEY_NAME))
    with queue_tables.owned(bench):
        assert counts(conn) == [0] * 5


def test_batches_of_somebody_else_are_left_alone(bench: Bench, conn: Connection) -> None:
    fill(conn, make_key(conn, "crawler"))
    with pytest.raises(Problem, match="holds batches that the benchmark did not push"), queue_tables.owned(bench):
        pass
    assert counts(conn) == [1] * 5
    assert [key.name for key in api_keys.every(conn)] == ["crawler"]
