"""`novel serve`: the HTTP services, in one process or several."""

import socket
import sys
from functools import partial

import click
import uvloop

from cli import compose
from cli.console import load_settings, say
from runtime import garbage, metrics, server
from runtime.children import Command, wait_until
from runtime.problems import Problem
from runtime.settings import HttpSettings, Settings
from runtime.shutdown import Stop, Stopped, on_signals
from runtime.supervisor import Supervisor
from schema import connection, version

# What a process needs to end after its drain.
STOP_GRACE_SECONDS = 10.0


@click.command(short_help="Serve the HTTP services.")
@click.argument("service", type=click.Choice([*compose.SERVICES, "all"]), default="all")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8080, show_default=True, type=click.IntRange(1, 65535), help="Port to listen on.")
@click.option(
    "--processes", default=1, show_default=True, type=click.IntRange(1, 64), help="How many processes answer."
)
@click.option("--fd", type=click.IntRange(min=0), hidden=True, help="A listening socket inherited from the parent.")
@click.option("--label", hidden=True, help="Tells this process from others like it in a list of processes.")
def serve(service: str, host: str, port: int, processes: int, fd: int | None, label: str | None) -> None:
    """Serve one of the services, or all of them, until SIGTERM or Ctrl-C."""
    if not host:
        raise Problem("--host is empty. Use 127.0.0.1, or 0.0.0.0 to listen on every address.")
    settings = load_settings()
    with connection.connect(settings.database) as conn:
        version.require(version.current(conn), place=conn.address.place)
    if "ingest" in _services(service):
        compose.require_master_key(settings)
    listener = socket.socket(fileno=fd) if fd is not None else server.listen(host, port)
    with on_signals(Stop()) as stop:
        if processes == 1:
            _run(settings, service, listener, stop, announce=fd is None)
        else:
            _supervise(settings, service, listener, stop, processes)


def _run(settings: Settings, service: str, listener: socket.socket, stop: Stop, *, announce: bool) -> None:
    names = _services(service)

    def on_ready() -> None:
        if announce:
            say(f"Serving {service} on {_address(listener)}")

    garbage.search_seldom()

    async def run() -> None:
        await server.serve(
            compose.application(settings, names, stop=stop),
            listener,
            stop=stop,
            drain_seconds=settings.http.drain_seconds,
            unready_seconds=settings.http.unready_seconds,
            on_ready=on_ready,
        )

    uvloop.run(run())


def _supervise(settings: Settings, service: str, listener: socket.socket, stop: Stop, processes: int) -> None:
    """Several processes accept from one socket and share their metrics; whichever dies is started again."""
    supervisor = Supervisor(stop)
    with metrics.shared():
        try:
            for number in range(1, processes + 1):
                make = partial(child_command, service, listener, http=settings.http, name=f"api-{number}")
                child = supervisor.add(make)
            wait_until(partial(server.answers, listener, "/healthz"), child, stop=stop)
            say(f"Serving {service} on {_address(listener)} with {processes} processes")
            supervisor.run()
        except Stopped:
            pass
        finally:
            # Ours too: as long as one is open, the kernel takes connections that nobody would answer any more.
            listener.close()
            supervisor.stop_all(at_once=True)


def child_command(service: str, listener: socket.socket, *, http: HttpSettings, name: str, label: str = "") -> Command:
    """A process that serves on a socket of ours."""
    descriptor = listener.fileno()
    marker = f"--label={label}" if label else ""
    # -P: the folder we are in may have packages of the same names, which are none of ours.
    argv = (sys.executable, "-P", "-m", "cli", "serve", service, "--fd", str(descriptor), *filter(None, [marker]))
    return Command(
        name=name,
        argv=argv,
        pass_fds=(descriptor,),
        marker=marker,
        stop_seconds=http.unready_seconds + http.drain_seconds + STOP_GRACE_SECONDS,
    )


def _services(service: str) -> tuple[str, ...]:
    return compose.SERVICES if service == "all" else (service,)


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
