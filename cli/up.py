"""`novel up`: everything on this machine, from an empty folder to a page that answers, kept alive until Ctrl-C."""

import contextlib
import json
import os
import shlex
import socket
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from cli import demo, workers
from cli.console import load_settings, mark, say
from cli.serve import child_command
from runtime import children, metrics, server
from runtime.alone import alone
from runtime.private_redis import PrivateRedis
from runtime.private_server import private_directory, remembered_secret, write_private
from runtime.problems import Problem
from runtime.settings import Settings, load
from runtime.settings import variables as settings_variables
from runtime.shutdown import Stop, Stopped, on_signals
from runtime.supervisor import Supervisor
from schema import connection, migrator
from schema.private_database import PrivateDatabase
from store import administrators, api_keys

HOST = "127.0.0.1"
DEFAULT_PORT = 8080
PORTS_TRIED = 20
DEMO_KEY_NAME = "demo"
ENVIRONMENT = "env"
ADMIN = "admin"
# In a database that we were given, "admin" may be somebody: WordPress suggests that name.
ADMIN_ELSEWHERE = "novel-admin"
MAX_LOG_BYTES = 10 << 20
# A set of each kind: chapters are most of the work.
WORKERS = {
    "story-worker": ("ingest-worker", "stories"),
    "chapter-worker": ("ingest-worker", "chapters", "--concurrency", "2"),
    "recount-worker": ("recount-worker", "stories"),
}


@click.command()
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".local"),
    show_default=True,
    help="Where the servers keep their data.",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    help=f"Port to serve on. [default: {DEFAULT_PORT}, or the next free one]",
)
@click.option("--no-demo", is_flag=True, help="Push no demo catalogue.")
@click.option(
    "--ready-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write addresses and credentials here, as JSON, once requests are accepted.",
)
def up(data_dir: Path, port: int | None, no_demo: bool, ready_file: Path | None) -> None:
    """Run everything on this machine: database, Redis, migrations, API, workers. Ctrl-C stops all of it.

    Set NOVEL_DATABASE_URL or NOVEL_REDIS_URL to use servers you already have.
    """
    settings = load_settings(log_level=None if "NOVEL_LOG_LEVEL" in os.environ else "warning")
    directory = private_directory(data_dir.absolute())
    if ready_file and not ready_file.parent.is_dir():
        raise Problem(f"there is no folder {ready_file.parent} for --ready-file.")
    # The listener stays open here, because a new API process is handed the same one.
    # The API shows the metrics of the workers too.
    with _one_on(directory), on_signals(Stop()) as stop, _listen(port) as listener, metrics.shared():
        if ready_file:
            ready_file.unlink(missing_ok=True)  # of a run that was killed
        supervisor = Supervisor(stop)
        try:
            ready = _start(settings, directory, listener, supervisor, stop)
            # Not into a database that we were given: it may be somebody's site.
            if not no_demo and settings.database.address is None:
                _push_demo(ready)
                stop.check()
            if ready_file:
                write_private(ready_file, json.dumps(ready, indent=2) + "\n")
            _announce(ready, directory)
            supervisor.run()
        except Stopped:
            pass
        finally:
            say("Stopping ...")
            listener.close()  # so that clients are refused, and do not wait for an answer that never comes
            supervisor.stop_all()
            if ready_file:
                ready_file.unlink(missing_ok=True)
    say("Stopped.")


def _one_on(directory: Path) -> contextlib.AbstractContextManager[None]:
    """Two of us on one data folder would take each other's servers for leftovers."""
    return alone(
        directory / "up.lock",
        otherwise=lambda holder: (
            f"novel up already runs on {directory} (process {holder}). Stop it first,"
            " or choose another folder with --data-dir."
        ),
    )


def _start(
    settings: Settings, directory: Path, listener: socket.socket, supervisor: Supervisor, stop: Stop
) -> dict[str, str]:
    """Start everything in the order of dependence; returns what the ready file says."""
    environ = dict(os.environ)
    admin = ADMIN if settings.database.address is None else ADMIN_ELSEWHERE
    if settings.database.address is None:
        say("Starting MariaDB ...")
        environ["NOVEL_DATABASE_URL"] = _start_database(directory, supervisor, stop)
    if settings.redis.address is None and "NOVEL_REDIS_URL" not in environ:
        say("Starting Redis ...")
        environ["NOVEL_REDIS_URL"] = _start_redis(directory, supervisor, stop)
    has_own_master_key = settings.secrets.master_key is None
    if has_own_master_key:
        environ["NOVEL_MASTER_KEY"] = remembered_secret(directory / "master.key")
    settings = load(environ)
    stop.check()
    credentials = _prepare_database(settings, directory, admin=admin, may_replace_key=has_own_master_key)
    stop.check()
    say("Starting the API ...")
    _start_api(settings, listener, environ, directory, supervisor, stop)
    say("Starting the workers ...")
    _start_workers(settings, environ, directory, supervisor)
    base_url = f"http://{HOST}:{listener.getsockname()[1]}"
    _remember_environment(environ, directory, base_url=base_url, credentials=credentials)
    assert settings.database.address is not None
    return {
        "base_url": base_url,
        "admin_url": f"{base_url}/admin/",
        "database_url": settings.database.address.url,
        "redis_url": settings.redis.address.url if settings.redis.address else "",
        **credentials,
    }


def _push_demo(ready: Mapping[str, str]) -> None:
    say("Pushing a demo catalogue ...")
    if not demo.push(ready["base_url"], key_id=ready["key_id"], secret=ready["secret"]):
        say("The demo catalogue could not be pushed. `novel push` says why: see docs/ingest.md.")


def _remember_environment(
    environ: Mapping[str, str], directory: Path, *, base_url: str, credentials: Mapping[str, str]
) -> None:
    """For a shell that wants to use the same servers, and to push to them."""
    ours = {"NOVEL_PUBLIC_URL": base_url}
    ours |= {name: value for name, value in environ.items() if name in settings_variables()}
    ours |= {"NOVEL_PUSH_KEY_ID": credentials["key_id"], "NOVEL_PUSH_SECRET": credentials["secret"]}
    write_private(directory / ENVIRONMENT, "".join(f"{name}={shlex.quote(ours[name])}\n" for name in sorted(ours)))


def _start_database(directory: Path, supervisor: Supervisor, stop: Stop) -> str:
    database = PrivateDatabase(directory / "mariadb")
    _trim(database.directory / "error.log")
    database.server.prepare()
    database.server.wait(supervisor.add(database.server.command), stop=stop)
    return database.address.url


def _start_redis(directory: Path, supervisor: Supervisor, stop: Stop) -> str:
    redis = PrivateRedis(directory / "redis")
    _trim(redis.directory / "server.log")
    redis.prepare()
    redis.wait(supervisor.add(redis.command), stop=stop)
    return redis.url


def _prepare_database(settings: Settings, directory: Path, *, admin: str, may_replace_key: bool) -> dict[str, str]:
    """Migrate, and make sure of an administrator and a key to push with."""
    master_key = settings.secrets.master_key
    assert master_key is not None
    password = remembered_secret(directory / "admin.password")
    with connection.connect(settings.database, statement_seconds=0) as conn:
        for migration in migrator.migrate(conn, lock_seconds=settings.database.migration_lock_seconds):
            say(f"Migrated: {migration.name}")
        administrators.ensure(conn, login=admin, email=f"{admin}@localhost", password=password, operator="novel up")
        key_id, secret = _demo_key(conn, master_key, may_replace=may_replace_key)
    return {"key_id": key_id, "secret": secret, "admin_user": admin, "admin_password": password}


def _demo_key(conn: connection.Connection, master_key: str, *, may_replace: bool) -> tuple[str, str]:
    """A key of ours to push with. Another data folder, with a master key of its own, may have left one too."""
    problem: Problem | None = None
    for key in api_keys.active(conn, name=DEMO_KEY_NAME):
        try:
            return key.key_id, api_keys.check_secret(key, master_key)
        except Problem as error:
            problem = error
    if problem and not may_replace:
        raise problem
    return api_keys.create(
        conn, name=DEMO_KEY_NAME, permissions=api_keys.PERMISSIONS, master_key=master_key, operator="novel up"
    )


def _start_api(
    settings: Settings,
    listener: socket.socket,
    environ: Mapping[str, str],
    directory: Path,
    supervisor: Supervisor,
    stop: Stop,
) -> None:
    logs_directory = private_directory(directory / "logs")
    command = replace(
        child_command("all", listener, http=settings.http, name="api", label=str(directory)),
        environ=environ,
        output=logs_directory / "api.log",
        pid_file=directory / "api.pid",
    )
    _trim(logs_directory / "api.log")
    children.end_leftover(command)
    child = supervisor.add(lambda: command)
    children.wait_until(lambda: server.answers(listener, "/readyz"), child, stop=stop)


def _start_workers(settings: Settings, environ: Mapping[str, str], directory: Path, supervisor: Supervisor) -> None:
    logs_directory = private_directory(directory / "logs")
    for name, arguments in WORKERS.items():
        command = workers.command(name, arguments, settings=settings, label=str(directory))
        output = logs_directory / f"{name}.log"
        command = replace(command, environ=environ, output=output, pid_file=directory / f"{name}.pid")
        _trim(output)
        children.end_leftover(command)
        supervisor.add(partial(_same, command))


def _same(command: children.Command) -> children.Command:
    return command


def _listen(port: int | None) -> socket.socket:
    """On the port that was asked for, else on the first that is free."""
    if port is not None:
        return server.listen(HOST, port)
    for number in range(DEFAULT_PORT, DEFAULT_PORT + PORTS_TRIED):
        with contextlib.suppress(Problem):
            listener = server.listen(HOST, number)
            if number != DEFAULT_PORT:
                say(f"Port {DEFAULT_PORT} is in use; using {number}.")
            return listener
    raise Problem(
        f"every port from {DEFAULT_PORT} to {DEFAULT_PORT + PORTS_TRIED - 1} is in use: choose one with --port."
    )


def _trim(log_file: Path) -> None:
    """Keep one older file at most, so that logs of a development machine stay bounded."""
    if log_file.exists() and log_file.stat().st_size > MAX_LOG_BYTES:
        log_file.replace(log_file.with_suffix(".log.old"))


def _announce(ready: Mapping[str, str], directory: Path) -> None:
    say()
    say(mark("The novel service is running.", "green"))
    say(f"  API        {ready['base_url']}/wp-json/novel/v1")
    say(f"  Admin      {ready['admin_url']}   (user {ready['admin_user']}, password {ready['admin_password']})")
    say(f"  Ingest key {ready['key_id']}   (secret {ready['secret']})")
    say(f"  Logs       {directory}/logs/")
    # By its whole path: make installs it where no PATH leads.
    novel = Path(sys.executable).with_name("novel")
    load = f"set -a; . {shlex.quote(str(directory / ENVIRONMENT))}; set +a"
    say(f"  Commands   {load}   (then for example: {shlex.quote(str(novel))} doctor)")
    say("Ctrl-C stops it.")
