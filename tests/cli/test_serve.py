"""`novel serve` as its operators run it: started, asked, overloaded, killed, told to stop."""

import http.client
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.serve import child_command
from runtime import children, ports, server, settings
from runtime.children import Child
from runtime.private_redis import PrivateRedis
from schema import connection, migrations, migrator, version
from schema.connection import Connection
from schema.private_database import PrivateDatabase
from tests.conftest import MASTER_KEY, NovelCommand
from tests.processes import HOST, Served, answer, children_of, kill, serving, stopped, wait_for

HEALTHZ_ANSWERED = 'novel_http_requests_total{method="GET",route="/healthz",status="200"}'
IN_USE = "novel_database_connections_in_use"
OPEN = "novel_database_connections_open"

# Readiness waits for a database that stands still, however slow the machine is.
PATIENT = {"NOVEL_CHECK_SECONDS": "60"}


class OwnDatabase:
    """A database server that a test may stop and kill."""

    def __init__(self, directory: Path) -> None:
        self._private = PrivateDatabase(directory)
        self.child: Child = self._private.start()
        with connection.connect(settings.load(self.variables).database) as conn:
            migrator.migrate(conn, lock_seconds=10)

    @property
    def variables(self) -> dict[str, str]:
        return {"NOVEL_DATABASE_URL": self._private.address.url, "NOVEL_MASTER_KEY": MASTER_KEY}

    def kill(self) -> None:
        self.child.process.kill()
        self.child.process.wait()

    def start_again(self) -> None:
        before = self._private.address
        self.child = self._private.start()
        assert self._private.address == before


@pytest.fixture(scope="module")
def own_database(scratch: Path) -> Iterator[OwnDatabase]:
    database = OwnDatabase(scratch / "serve-db")
    yield database
    database.child.stop()


# -- what answers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("service", "there", "absent"),
    [
        ("ingest", [], ["/wp-json/", "/admin/", "/"]),
        ("readapi", ["/wp-json/", "/wp-json/novel/v1"], ["/admin/", "/"]),
        ("admin", ["/admin/", "/"], ["/wp-json/"]),
        ("all", ["/wp-json/", "/wp-json/novel/v1", "/admin/", "/"], []),
    ],
)
def test_a_service_answers_its_routes_and_no_others(
    tmp_path: Path, environ: dict[str, str], service: str, there: list[str], absent: list[str]
) -> None:
    with serving(tmp_path, environ, service) as served:
        assert f"Serving {service} on http://{HOST}:{served.port}\n" in served.said()
        assert {path: served.get(path).status for path in (*there, *absent)} == (
            dict.fromkeys(there, 200) | dict.fromkeys(absent, 404)
        )
        assert served.get("/healthz").json() == {"status": "ok"}
        assert served.get("/readyz").json() == {
            "status": "ready",
            "checks": {
                "database": {"ok": True, "required": True},
                "schema": {"ok": True, "required": True},
                "redis": {"ok": True, "required": False},
            },
        }
        assert served.metric('novel_http_requests_total{method="GET",route="/readyz",status="200"}') == 1
        assert served.stop() == 0
    assert "Traceback" not in served.said()


def test_without_a_name_it_serves_all_of_them_and_without_redis_it_does_not_look_for_one(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    with serving(tmp_path, environ | {"NOVEL_REDIS_URL": ""}) as served:
        assert served.get("/wp-json/").status == served.get("/admin/").status == 200
        assert set(served.get("/readyz").json()["checks"]) == {"database", "schema"}


def test_ctrl_c_is_a_graceful_stop_too(tmp_path: Path, environ: dict[str, str]) -> None:
    with serving(tmp_path, environ) as served:
        assert served.stop(signal.SIGINT) == 0


# -- refusals: one line, and what to do ------------------------------------------------------------------


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_port_that_is_taken_is_one_line(novel: NovelCommand, environ: dict[str, str], processes: str) -> None:
    port = ports.find()
    with server.listen(HOST, port):
        done = novel("serve", "--port", str(port), "--processes", processes, **environ)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == (
        f"novel: cannot listen on {HOST}:{port}: Address already in use."
        " Choose another address with --host and --port.\n"
    )


def test_a_host_that_is_not_ours_is_one_line(novel: NovelCommand, environ: dict[str, str]) -> None:
    for host in ("192.0.2.1", "no-such-host.invalid", "::ffff:192.0.2.1"):
        done = novel("serve", "--host", host, **environ)
        assert (done.returncode, done.stdout) == (1, "")
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"novel: cannot listen on {host}:8080: ")


@pytest.mark.parametrize("processes", ["1", "2"])
def test_an_old_schema_is_refused_with_the_command_that_mends_it(
    novel: NovelCommand, empty_conn: Connection, processes: str
) -> None:
    migrator.migrate(empty_conn, lock_seconds=5)
    version.record(empty_conn, migrations.latest() - 1)
    url = empty_conn.address.url
    done = novel("serve", "--processes", processes, NOVEL_DATABASE_URL=url, NOVEL_MASTER_KEY=MASTER_KEY)
    assert done.returncode == 1
    assert done.stderr == (
        f"novel: the database {empty_conn.address.place} is at schema version {migrations.latest() - 1};"
        f" this program needs version {migrations.latest()}. Run: novel migrate\n"
    )


def test_a_newer_schema_is_served_so_that_an_upgrade_can_roll(tmp_path: Path, empty_conn: Connection) -> None:
    migrator.migrate(empty_conn, lock_seconds=5)
    version.record(empty_conn, migrations.latest() + 1)
    variables = {"NOVEL_DATABASE_URL": empty_conn.address.url, "NOVEL_MASTER_KEY": MASTER_KEY}
    with serving(tmp_path, variables) as served:
        assert served.get("/readyz").status == 200
        version.record(empty_conn, migrations.latest() - 1)  # someone restored an old backup under it
        assert served.get("/readyz").json()["checks"]["schema"] == {"ok": False, "required": True}
        assert served.get("/readyz").status == 503


# -- readiness -------------------------------------------------------------------------------------------


def test_readiness_follows_the_database(tmp_path: Path, own_database: OwnDatabase) -> None:
    with serving(tmp_path, own_database.variables) as served:
        assert served.get("/readyz").status == 200
        own_database.kill()
        lost = served.get("/readyz")
        assert lost.status == 503
        assert lost.json()["status"] == "unready"
        assert lost.json()["checks"]["database"] == {"ok": False, "required": True}
        assert served.get("/healthz").status == 200
        assert served.get("/wp-json/").status == 200
        own_database.start_again()
        wait_for(lambda: served.get("/readyz").status == 200)
        assert served.stop() == 0


def test_readiness_is_off_while_the_database_hangs(tmp_path: Path, own_database: OwnDatabase) -> None:
    with serving(tmp_path, own_database.variables) as served:
        with stopped(own_database.child.pid):
            assert served.get("/readyz").status == 503
            assert served.get("/healthz").status == 200
        wait_for(lambda: served.get("/readyz").status == 200)


def test_a_lost_redis_is_shown_but_the_service_goes_on(
    tmp_path: Path, scratch: Path, environ: dict[str, str], request: pytest.FixtureRequest
) -> None:
    redis = PrivateRedis(scratch / "serve-redis")
    redis.prepare()
    child = children.start(redis.command())
    request.addfinalizer(child.stop)
    redis.wait(child)
    with serving(tmp_path, environ | {"NOVEL_REDIS_URL": redis.url}) as served:
        assert served.get("/readyz").json()["checks"]["redis"] == {"ok": True, "required": False}
        child.process.kill()
        child.process.wait()
        lost = served.get("/readyz")
        assert (lost.status, lost.json()["status"]) == (200, "ready")
        assert lost.json()["checks"]["redis"] == {"ok": False, "required": False}
        redis.prepare()
        again = children.start(redis.command())
        request.addfinalizer(again.stop)
        redis.wait(again)
        wait_for(lambda: served.get("/readyz").json()["checks"]["redis"]["ok"])
        assert served.stop() == 0


# -- a graceful stop -------------------------------------------------------------------------------------


def begin_readyz(served: Served) -> http.client.HTTPConnection:
    """A request that waits for a database that does not answer."""
    before = served.metric(IN_USE)
    client = http.client.HTTPConnection(HOST, served.port, timeout=30)
    client.request("GET", "/readyz")
    wait_for(lambda: served.metric(IN_USE) > before)
    return client


def test_a_request_under_way_is_finished_while_no_new_connection_is_accepted(
    tmp_path: Path, own_database: OwnDatabase
) -> None:
    with serving(tmp_path, own_database.variables | PATIENT | {"NOVEL_DRAIN_SECONDS": "60"}) as served:
        assert served.get("/readyz").status == 200
        with stopped(own_database.child.pid):
            client = begin_readyz(served)
            served.process.terminate()
            wait_for(lambda: not served.accepts())
            assert served.process.poll() is None
        finished = answer(client.getresponse())
        client.close()
        assert finished.json()["status"] == "stopping"
        assert finished.json()["checks"]["database"]["ok"] is True
        assert served.process.wait(60) == 0
    assert "Traceback" not in served.said()


def test_a_request_that_outlives_the_deadline_is_ended(tmp_path: Path, own_database: OwnDatabase) -> None:
    with serving(tmp_path, own_database.variables | PATIENT | {"NOVEL_DRAIN_SECONDS": "1"}) as served:
        assert served.get("/readyz").status == 200
        with stopped(own_database.child.pid):
            client = begin_readyz(served)
            assert served.stop() == 0
            ended = answer(client.getresponse())
            assert ended.status == 503
            assert ended.headers["retry-after"]
            assert ended.json()["error"]["code"] == "unavailable"
            client.close()
        assert "Traceback" not in served.said()


def test_clients_that_never_finish_their_request_do_not_hold_up_the_stop(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    with serving(tmp_path, environ | {"NOVEL_DRAIN_SECONDS": "600"}) as served:
        idle, half_head, half_body = sockets = [served.connect() for _ in range(3)]
        idle.sendall(b"GET /healthz HTTP/1.1\r\nHost: test\r\n\r\n")
        assert idle.recv(65536).startswith(b"HTTP/1.1 200 ")
        half_head.sendall(b"GET /healthz HTTP/1.1\r\nHo")
        half_body.sendall(b"POST /wp-json/ HTTP/1.1\r\nHost: test\r\nContent-Length: 1000\r\n\r\nhalf")
        assert half_body.recv(65536).startswith(b"HTTP/1.1 405 ")
        assert served.stop() == 0
        for client in sockets:
            assert _is_closed(client)
            client.close()
    assert "Traceback" not in served.said()


def _is_closed(client: socket.socket) -> bool:
    try:
        while client.recv(65536):
            pass
    except ConnectionError:
        pass
    return True


def test_readiness_turns_off_before_the_stop(tmp_path: Path, environ: dict[str, str]) -> None:
    with serving(tmp_path, environ | {"NOVEL_UNREADY_SECONDS": "120"}) as served:
        served.process.terminate()
        wait_for(lambda: served.get("/readyz").status == 503)
        assert served.get("/readyz").json()["status"] == "stopping"
        for _ in range(40):  # long enough for a stop to be noticed
            assert served.get("/wp-json/").status == 200
            time.sleep(0.02)
        served.process.terminate()  # who asks twice is in a hurry
        assert served.process.wait(60) == 128 + signal.SIGTERM


# -- several processes -----------------------------------------------------------------------------------


@pytest.fixture
def pair(tmp_path: Path, environ: dict[str, str]) -> Iterator[Served]:
    """Two processes behind one port; what they share on disk is below tmp_path/shared."""
    (tmp_path / "shared").mkdir()
    variables = environ | {"TMPDIR": str(tmp_path / "shared"), "NOVEL_DRAIN_SECONDS": "60"}
    with serving(tmp_path, variables, "--processes", "2") as served:
        wait_for(lambda: len(children_of(served.process.pid)) == 2)
        yield served
        if served.process.poll() is None:
            assert served.stop() == 0


def test_both_processes_answer_and_metrics_are_added_up(pair: Served) -> None:
    assert f"Serving all on http://{HOST}:{pair.port} with 2 processes\n" in pair.said()
    before = pair.metric(HEALTHZ_ANSWERED)  # its parent has asked, too
    first, second = children_of(pair.process.pid)
    with stopped(first):
        assert [pair.get("/healthz").status for _ in range(3)] == [200] * 3
        assert pair.metric(HEALTHZ_ANSWERED) == before + 3
    with stopped(second):
        assert [pair.get("/healthz").status for _ in range(4)] == [200] * 4
        assert pair.metric(HEALTHZ_ANSWERED) == before + 7


def test_a_killed_process_is_replaced_while_the_other_answers(pair: Served) -> None:
    before = pair.metric(HEALTHZ_ANSWERED)
    first, second = children_of(pair.process.pid)
    with stopped(second):
        assert pair.get("/healthz").status == 200
        assert pair.get("/readyz").status == 200
        held = pair.metric(OPEN)
        assert held > 0
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: first not in children_of(pair.process.pid))
    assert pair.get("/healthz").status == 200
    wait_for(lambda: len(children_of(pair.process.pid)) == 2)
    assert second in children_of(pair.process.pid)
    with stopped(second):  # so that the new one answers
        assert pair.get("/healthz").status == 200
        assert pair.metric(HEALTHZ_ANSWERED) == before + 3  # what the dead one counted still counts
        assert pair.metric(OPEN) <= held  # what it held open does not, and the new one has a connection of its own
    assert '"event":"child.died"' in pair.said()
    assert "Traceback" not in pair.said()


def test_a_stop_ends_every_process_and_cleans_up(tmp_path: Path, pair: Served) -> None:
    ended = children_of(pair.process.pid)
    assert list((tmp_path / "shared").iterdir()) != []
    assert pair.stop() == 0
    assert [pid for pid in ended if Path(f"/proc/{pid}").exists()] == []
    assert not pair.accepts()
    assert list((tmp_path / "shared").iterdir()) == []


def test_processes_do_not_outlive_a_killed_parent(pair: Served) -> None:
    orphans = children_of(pair.process.pid)
    assert pair.get("/healthz").status == 200
    pair.process.kill()
    pair.process.wait()
    try:
        wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in orphans))
    finally:
        kill(orphans)
    assert not pair.accepts()


@pytest.mark.parametrize("busy", [0, 1])
def test_nothing_accepts_connections_while_one_process_finishes_a_request(
    tmp_path: Path, own_database: OwnDatabase, busy: int
) -> None:
    variables = own_database.variables | PATIENT | {"NOVEL_DRAIN_SECONDS": "60"}
    with serving(tmp_path, variables, "--processes", "2") as served:
        wait_for(lambda: len(children_of(served.process.pid)) == 2)
        with stopped(children_of(served.process.pid)[1 - busy]):  # so that the other has the request
            assert served.get("/readyz").status == 200
            os.kill(own_database.child.pid, signal.SIGSTOP)
            client = begin_readyz(served)
        with stopped(own_database.child.pid):
            served.process.terminate()
            wait_for(lambda: not served.accepts())
        assert answer(client.getresponse()).json() == {
            "status": "stopping",
            "checks": {"database": {"ok": True, "required": True}, "schema": {"ok": True, "required": True}},
        }
        client.close()
        assert served.process.wait(60) == 0


def test_processes_run_our_code_whatever_lies_in_the_folder(
    tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`python -m` would look into the current folder first."""
    for package in ("cli", "store"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("raise SystemExit('foreign code')")
    monkeypatch.chdir(tmp_path)
    with serving(tmp_path, environ, "--processes", "2") as served:
        assert served.get("/healthz").status == 200
        assert "foreign code" not in served.said()


def test_processes_get_as_long_to_stop_as_the_settings_say() -> None:
    http = settings.load({"NOVEL_DRAIN_SECONDS": "600", "NOVEL_UNREADY_SECONDS": "120"}).http
    with socket.create_server((HOST, 0)) as listener:
        assert child_command("all", listener, http=http, name="api").stop_seconds > 720
