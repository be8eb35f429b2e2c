"""Where load tests run: beside a given database or on a server of their own, one at a time."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtests import place
from runtime import ports
from runtime.problems import Problem
from schema import connection
from schema.connection import Connection
from tests.processes import processes_of


@pytest.fixture
def cleaned(empty_conn: Connection) -> Iterator[Connection]:
    """A connection to a database beside which another is made, and dropped in the end."""
    yield empty_conn
    empty_conn.execute(f"DROP DATABASE IF EXISTS `{empty_conn.address.database}_bench`")


def test_a_given_database_is_not_touched_but_gets_one_beside_it(cleaned: Connection, tmp_path: Path) -> None:
    environ = {"NOVEL_DATABASE_URL": cleaned.address.url, "NOVEL_TABLE_PREFIX": "blog7_"}
    with place.opened(environ, directory=tmp_path / "bench") as opened:
        assert opened.database.address is not None
        assert opened.database.address.database == f"{cleaned.address.database}_bench"
        assert opened.database.table_prefix == "blog7_"
        with connection.connect(opened.database) as conn:
            assert conn.fetch_all("SELECT DATABASE(), @@collation_database") == [
                (f"{cleaned.address.database}_bench", "utf8mb4_unicode_520_ci")
            ]
    assert cleaned.fetch_all("SHOW TABLES") == []


def test_the_name_stays_when_it_says_so_already() -> None:
    assert place.bench_name("novel") == "novel_bench"
    assert place.bench_name("novel_bench") == "novel_bench"
    assert len(place.bench_name("x" * 58)) == 64
    with pytest.raises(Problem, match="too long"):
        place.bench_name("x" * 59)


def test_a_server_that_is_down_is_a_problem_in_one_line(tmp_path: Path) -> None:
    environ = {"NOVEL_DATABASE_URL": f"mysql://u:p@127.0.0.1:{ports.find()}/novel"}
    with pytest.raises(Problem, match="no database server answers"), place.opened(environ, directory=tmp_path):
        pass


def test_one_load_test_at_a_time_uses_a_folder(cleaned: Connection, tmp_path: Path) -> None:
    environ = {"NOVEL_DATABASE_URL": cleaned.address.url}
    with place.opened(environ, directory=tmp_path):
        with pytest.raises(Problem) as problem, place.opened(environ, directory=tmp_path):
            pass
        assert str(problem.value) == (
            f"another load test (process {os.getpid()}) is using {tmp_path}: wait until it ends."
        )
        with place.opened(environ, directory=tmp_path / "another"):
            pass
    with place.opened(environ, directory=tmp_path):  # free again
        pass


def test_without_a_database_a_private_server_runs_for_as_long_as_it_is_needed(scratch: Path) -> None:
    directory = scratch / "bench"
    with place.opened({}, directory=directory) as opened:
        with connection.connect(opened.database) as conn:
            assert conn.fetch_all("SELECT @@global.tx_isolation, @@innodb_flush_log_at_trx_commit") == [
                ("READ-COMMITTED", 1)
            ]
        assert len(processes_of(directory)) == 1
    assert processes_of(directory) == []


def test_sigterm_unwinds_the_block_and_stops_the_server(scratch: Path) -> None:
    directory = scratch / "bench"
    before = signal.getsignal(signal.SIGTERM)
    with contextlib.suppress(KeyboardInterrupt), place.opened({}, directory=directory):
        assert len(processes_of(directory)) == 1
        signal.raise_signal(signal.SIGTERM)
        pytest.fail("the block went on")
    assert processes_of(directory) == []
    assert signal.getsignal(signal.SIGTERM) is before
