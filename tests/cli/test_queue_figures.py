"""What /metrics says of the queue, also when no worker runs."""

from pathlib import Path

from schema.connection import Connection
from tests.processes import serving

READY = """
    INSERT INTO wp_novel_ingest_ready
        (job_type, source, request_id, payload_blob_id, first_item, last_item, items, payload_bytes, next_run_at,
         created_at)
    VALUES ('chapters_bulk', %s, 'r', 1, 0, 9, %s, 1, UTC_TIMESTAMP(6) + INTERVAL %s SECOND, UTC_TIMESTAMP(6))
"""


def test_depth_and_age_of_the_queue_are_those_of_the_moment(
    tmp_path: Path, conn: Connection, environ: dict[str, str]
) -> None:
    conn.execute(READY, ("a", 10, -120))
    conn.execute(READY, ("a", 5, 60))
    conn.execute(
        "INSERT INTO wp_novel_story_recount_queue (story_id, dirty_since, next_run_at, updated_at)"
        " VALUES (1, UTC_TIMESTAMP(), UTC_TIMESTAMP() - INTERVAL 30 SECOND, UTC_TIMESTAMP())"
    )
    conn.execute(
        "INSERT INTO wp_novel_upkeep (task, held_until, next_run_at, lag_seconds)"
        " VALUES ('jobs', UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL 1 HOUR, 7)"
    )
    of_a = '{job_type="chapters_bulk",source="a"}'
    with serving(tmp_path, environ, "readapi", "--processes", "2") as served:
        assert served.metric(f"novel_queue_waiting_items{of_a}") == 15
        assert served.metric(f"novel_queue_due_items{of_a}") == 10
        assert 120 <= served.metric(f"novel_queue_oldest_due_seconds{of_a}") < 180
        assert served.metric("novel_recount_waiting_stories") == 1
        assert 30 <= served.metric("novel_recount_oldest_due_seconds") < 90
        assert served.metric('novel_upkeep_lag_seconds{task="jobs"}') == 7
        conn.execute("DELETE FROM wp_novel_ingest_ready")
        assert served.metric(f"novel_queue_waiting_items{of_a}") == 0
        conn.execute("RENAME TABLE wp_novel_upkeep TO wp_novel_gone")
        try:
            assert served.metric('novel_http_requests_total{method="GET",route="/metrics",status="200"}') > 0
        finally:
            conn.execute("RENAME TABLE wp_novel_gone TO wp_novel_upkeep")
