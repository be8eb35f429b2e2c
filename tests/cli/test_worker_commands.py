"""`novel ingest-worker` and `recount-worker` as an operator runs them: started, stopped, limited, killed, mistaken."""

import os
import re
import signal
import socket
import urllib.request
from pathlib import Path

import click
import pytest

from cli import workers
from cli.workers import memory_form, spread
from runtime import ports, settings
from runtime.children import Command
from schema import migrations, migrator, version
from schema.connection import Connection
from tests.conftest import MASTER_KEY, NovelCommand
from tests.processes import children_of, wait_for
from tests.worker.batches import DONE, add_stories, all_ended, chapter, count, ended, push, waiting
from tests.worker.processes import CHAPTERS, STORIES, is_held_up, joined, let_go, slow_chapters, working

RECOUNTS = ("recount-worker", "stories")
EVERY = [CHAPTERS, STORIES, RECOUNTS]


# -- how it ends -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", EVERY)
def test_it_says_that_it_works_and_ends_well_when_asked_to(
    tmp_path: Path, environ: dict[str, str], conn: Connection, command: tuple[str, str]
) -> None:
    with working(tmp_path, environ, *command) as worker:
        assert f"novel {' '.join(command)} works.\n" in worker.said()
        assert list(joined(conn).values()) == [worker.pid]
        assert worker.stop() == 0
    assert joined(conn) == {}
    assert "Traceback" not in worker.said()


@pytest.mark.parametrize("options", [("--drain",), ("--max-runtime", "0.2"), ("--drain", "--concurrency", "3")])
def test_it_ends_by_itself_with_exit_code_0(
    tmp_path: Path, environ: dict[str, str], conn: Connection, options: tuple[str, ...]
) -> None:
    add_stories(conn)
    requests = [push(conn, [chapter(10 * n), chapter(10 * n + 1)]) for n in range(1, 10)]
    with working(tmp_path, environ, *CHAPTERS, *options, is_ready=False) as worker:
        assert worker.wait() == 0
    if "--drain" in options:
        assert [ended(conn, request_id) for request_id in requests] == [[DONE, DONE]] * 9
    assert joined(conn) == {}
    assert "Traceback" not in worker.said()


def test_at_sigterm_the_set_under_way_is_finished_and_the_rest_goes_back_as_it_was(
    tmp_path: Path, environ: dict[str, str], conn: Connection
) -> None:
    add_stories(conn)
    first = push(conn, [chapter(1, slug="slow")])
    with slow_chapters(conn), working(tmp_path, environ, *CHAPTERS, "--limit", "1") as worker:
        wait_for(lambda: is_held_up(conn))
        push(conn, [chapter(2)])
        before = waiting(conn)
        worker.process.send_signal(signal.SIGTERM)
        worker.wait_until("worker.ending")
        assert worker.process.poll() is None
        let_go(conn)
        assert worker.wait() == 0
    assert ended(conn, first) == [DONE]
    assert waiting(conn) == before
    assert joined(conn) == {}


@pytest.mark.parametrize("concurrency", ["1", "2"])
def test_a_second_signal_ends_it_at_once(
    tmp_path: Path, environ: dict[str, str], conn: Connection, concurrency: str
) -> None:
    add_stories(conn)
    request_id = push(conn, [chapter(1, slug="slow")])
    with slow_chapters(conn), working(tmp_path, environ, *CHAPTERS, "--concurrency", concurrency) as worker:
        wait_for(lambda: is_held_up(conn))
        offspring = children_of(worker.pid) if concurrency != "1" else []
        worker.process.send_signal(signal.SIGTERM)
        worker.wait_until("worker.ending")
        assert worker.stop(signal.SIGINT) == 128 + signal.SIGINT
        wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in offspring))
        assert ended(conn, request_id)[0].status == "queued"


def test_one_that_has_grown_too_large_ends_with_exit_code_75(
    tmp_path: Path, environ: dict[str, str], conn: Connection
) -> None:
    with working(tmp_path, environ, *CHAPTERS, "--memory-limit", "64M", is_ready=False) as worker:
        assert worker.wait() == workers.AGAIN_CODE  # it is larger than that from the beginning
    assert joined(conn) == {}


# -- several processes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("concurrency", "cores", "shares"),
    [(1, 2, [1]), (2, 2, [1, 1]), (3, 2, [2, 1]), (5, 2, [3, 2]), (2, 8, [1, 1]), (64, 3, [22, 21, 21]), (4, 1, [4])],
)
def test_sets_are_spread_evenly_over_as_many_processes_as_cores(
    concurrency: int, cores: int, shares: list[int]
) -> None:
    assert spread(concurrency, cores) == shares


@pytest.mark.usefixtures("two_cores")
def test_a_process_that_has_grown_too_large_is_started_again(
    tmp_path: Path, environ: dict[str, str], conn: Connection
) -> None:
    with working(tmp_path, environ, *CHAPTERS, "--concurrency", "2", "--memory-limit", "64M") as worker:
        wait_for(lambda: worker.said().count("child.ended") >= 2)
        worker.wait_until("child.restarted")
        assert f'"exit_code":{workers.AGAIN_CODE}' in worker.said()
        assert worker.stop() == 0
    assert "child.died" not in worker.said()


@pytest.fixture
def two_cores() -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two cores")


@pytest.mark.usefixtures("two_cores")
def test_a_process_that_ends_without_being_asked_by_its_parent_is_started_again(
    tmp_path: Path, environ: dict[str, str], conn: Connection
) -> None:
    with working(tmp_path, environ, *CHAPTERS, "--concurrency", "2", "--memory-limit", "100G") as worker:
        assert "works with 2 processes.\n" in worker.said()
        wait_for(lambda: len(joined(conn)) == 2)
        killed, other = children_of(worker.pid)
        os.kill(killed, signal.SIGKILL)
        wait_for(lambda: len(joined(conn)) == 2 and killed not in joined(conn).values())
        assert other in joined(conn).values()
        os.kill(other, signal.SIGTERM)  # by somebody else: it is missed
        wait_for(lambda: len(joined(conn)) == 2 and other not in joined(conn).values())
        assert worker.stop() == 0
    assert joined(conn) == {}, worker.said()
    assert "Traceback" not in worker.said()


@pytest.mark.usefixtures("two_cores")
def test_processes_share_the_sets_and_the_work(tmp_path: Path, environ: dict[str, str], conn: Connection) -> None:
    add_stories(conn)
    with working(tmp_path, environ, *CHAPTERS, "--concurrency", "3", "--limit", "1") as worker:
        wait_for(lambda: len(joined(conn)) == 2)
        lines = [Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") for pid in children_of(worker.pid)]
        assert sorted(line[line.index(b"--loops") + 1] for line in lines) == [b"1", b"2"]
        with slow_chapters(conn):
            for n in range(1, 5):
                push(conn, [chapter(n, slug="slow", story=n)])
            add_stories(conn, range(2, 5))
            # Each set in flight has one, and is held up with it.
            wait_for(lambda: count(conn, "ingest_leases") == 3)
            shares = conn.fetch_all("SELECT COUNT(*) FROM wp_novel_ingest_leases GROUP BY worker_id ORDER BY 1")
            assert shares == [(1,), (2,)]
            let_go(conn)
            wait_for(lambda: all_ended(conn))
        assert worker.stop() == 0


@pytest.mark.usefixtures("two_cores")
def test_metrics_of_all_processes_are_shown_in_one_place(
    tmp_path: Path, environ: dict[str, str], conn: Connection
) -> None:
    port = ports.find()
    variables = environ | {"NOVEL_WORKER_METRICS_ADDRESS": f"127.0.0.1:{port}"}
    add_stories(conn)
    for n in range(1, 21):
        push(conn, [chapter(n)])

    def shown() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            text: str = answer.read().decode()
            return text

    with working(tmp_path, variables, *CHAPTERS, "--concurrency", "2", "--limit", "1") as worker:
        wait_for(lambda: all_ended(conn))
        wait_for(lambda: 'novel_queue_items_total{job_type="chapters_bulk",outcome="completed"} 20.0\n' in shown())
        assert 'novel_queue_claimed_items_total{job_type="chapters_bulk"} 20.0\n' in shown()
        assert worker.stop() == 0


def test_metrics_of_one_process_are_shown_too(tmp_path: Path, environ: dict[str, str], conn: Connection) -> None:
    port = ports.find()
    with working(tmp_path, environ | {"NOVEL_WORKER_METRICS_ADDRESS": f"127.0.0.1:{port}"}, *CHAPTERS) as worker:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            assert b"novel_queue_apply_seconds" in answer.read()
        assert worker.stop() == 0


def test_workers_that_novel_up_starts_do_not_fight_for_the_address(
    tmp_path: Path, environ: dict[str, str], conn: Connection
) -> None:
    """They have one environment; the API shows the metrics of all of them."""
    variables = environ | {"NOVEL_WORKER_METRICS_ADDRESS": f"127.0.0.1:{ports.find()}"}
    with working(tmp_path, variables, *CHAPTERS, "--label=x"), working(tmp_path, variables, *STORIES, "--label=x"):
        wait_for(lambda: len(joined(conn)) == 2)


# -- mistakes --------------------------------------------------------------------------------------------


def only_line(done: object) -> str:
    assert done.stdout == ""  # type: ignore[attr-defined]
    (line,) = done.stderr.splitlines()  # type: ignore[attr-defined]
    return str(line)


@pytest.mark.parametrize(("command", "concurrency"), [(CHAPTERS, "1"), (RECOUNTS, "2")])
def test_without_a_database_it_says_so_in_one_line(
    novel: NovelCommand, command: tuple[str, str], concurrency: str
) -> None:
    done = novel(*command, "--concurrency", concurrency, NOVEL_DATABASE_URL="mysql://u:p@127.0.0.1:1/d")
    assert done.returncode == 1
    assert only_line(done).startswith("novel: no database server answers at 127.0.0.1:1. ")


def test_without_a_database_url_it_names_the_variable(novel: NovelCommand) -> None:
    done = novel(*CHAPTERS)
    assert done.returncode == 1
    assert only_line(done).startswith("novel: NOVEL_DATABASE_URL is not set.")


def test_an_old_schema_is_refused_with_the_command_that_mends_it(novel: NovelCommand, empty_conn: Connection) -> None:
    migrator.migrate(empty_conn, lock_seconds=5)
    version.record(empty_conn, migrations.latest() - 1)
    done = novel(*CHAPTERS, NOVEL_DATABASE_URL=empty_conn.address.url, NOVEL_MASTER_KEY=MASTER_KEY)
    assert done.returncode == 1
    assert "novel migrate" in only_line(done)


def test_a_schema_that_vanishes_under_a_worker_ends_it_with_one_line(
    tmp_path: Path, empty_conn: Connection, redis_url: str
) -> None:
    migrator.migrate(empty_conn, lock_seconds=5)
    variables = {"NOVEL_DATABASE_URL": empty_conn.address.url, "NOVEL_REDIS_URL": redis_url}
    with working(tmp_path, variables, *CHAPTERS) as worker:
        empty_conn.execute("DROP TABLE wp_novel_ingest_ready")
        assert worker.wait() == 1
    assert re.search(r"^novel: the database refused: Table '.+ready' doesn't exist$", worker.said(), re.MULTILINE)
    assert "Traceback" not in worker.said()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--concurrency", "0"), "0 is not in the range 1<=x<=64"),
        (("--limit", "x"), "'x' is not a valid integer"),
        (("--max-runtime", "nan"), "'nan' is no number of seconds."),
        (("--max-runtime", "inf"), "inf is not in the range"),
        (("--max-runtime", "-1"), "-1.0 is not in the range"),
        (("--memory-limit", "lots"), "'lots' is no amount of memory. Give at least 64M, as 512M or 1G."),
        (("--memory-limit", "1"), "'1' is no amount of memory."),
    ],
)
def test_a_bad_option_is_named(options: tuple[str, str], complaint: str) -> None:
    with pytest.raises(click.BadParameter) as refused:
        workers.ingest_worker.main(["chapters", *options], standalone_mode=False)
    assert complaint in refused.value.format_message()
    assert refused.value.exit_code == 2


@pytest.mark.parametrize("kind", ["", "recounts", "chapter"])
def test_what_there_is_no_worker_for_is_refused(kind: str) -> None:
    with pytest.raises(click.UsageError):
        workers.ingest_worker.main([kind] if kind else [], standalone_mode=False)


@pytest.mark.parametrize("concurrency", ["1", "2"])
def test_an_address_for_metrics_that_is_taken_is_one_line(
    novel: NovelCommand, environ: dict[str, str], concurrency: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = novel(*CHAPTERS, "--concurrency", concurrency, NOVEL_WORKER_METRICS_ADDRESS=address, **environ)
    assert done.returncode == 1
    assert only_line(done) == f"novel: cannot show metrics at {address}: Address already in use."


def test_a_bad_address_for_metrics_names_the_variable(novel: NovelCommand, environ: dict[str, str]) -> None:
    done = novel(*CHAPTERS, NOVEL_WORKER_METRICS_ADDRESS="9101", **environ)
    assert done.returncode == 2
    assert only_line(done).startswith("novel: NOVEL_WORKER_METRICS_ADDRESS must be an address and a port")


# -- forms and commands ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("64M", 64 << 20),
        ("512m", 512 << 20),
        ("1G", 1 << 30),
        ("1 GiB", 1 << 30),
        ("2GB", 2 << 30),
        ("65536k", 64 << 20),
        ("268435456", 268435456),
        (str(100 << 30), 100 << 30),  # as a process of several is told
        (" 100M ", 100 << 20),
    ],
)
def test_an_amount_of_memory_has_a_unit_or_is_in_bytes(text: str, size: int) -> None:
    assert memory_form(text) == size


@pytest.mark.parametrize("text", ["", "M", "63M", "1.5G", "-1G", "1T", "0x40M", "٦٤M", "64M 64M", "9" * 30])
def test_anything_else_is_no_amount_of_memory(text: str) -> None:
    with pytest.raises(ValueError, match="is no amount of memory"):
        memory_form(text)


def test_a_worker_gets_longer_to_stop_than_its_work_may_take(environ: dict[str, str]) -> None:
    loaded = settings.load(environ | {"NOVEL_WORKER_STOP_SECONDS": "600"})
    made: Command = workers.command("x", ("ingest-worker", "chapters"), settings=loaded, label="here")
    assert made.stop_seconds > 600
    assert workers.AGAIN_CODE in made.again_codes
    assert made.done_codes == frozenset()
    assert made.marker in made.argv


def test_a_dead_worker_is_found_when_the_next_one_starts(
    tmp_path: Path, environ: dict[str, str], conn: Connection
) -> None:
    """On the same machine nobody waits for the lease."""
    add_stories(conn)
    request_id = push(conn, [chapter(1, slug="slow")])
    with slow_chapters(conn), working(tmp_path, environ, *CHAPTERS) as worker:
        wait_for(lambda: is_held_up(conn))
        worker.process.kill()
        worker.wait()
        let_go(conn)
    with working(tmp_path, environ, *CHAPTERS, "--drain", is_ready=False) as another:
        assert another.wait() == 0
    assert [(item.status, item.attempts) for item in ended(conn, request_id)] == [("completed", 1)]
