"""API processes made to be killed. They start in no time, forked from one that has imported everything."""

import multiprocessing
import os
import signal
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.process import BaseProcess

import uvloop

from cli import compose
from runtime import logs, server, settings
from runtime.shutdown import Stop

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["cli.compose", "cli.serve", "tests.ingest.forked"])


class Forked:
    """One API process on a socket that it shares with others."""

    def __init__(self, listener: socket.socket, environ: Mapping[str, str]) -> None:
        self.process: BaseProcess = _FORKS.Process(target=_serve, args=(listener, dict(environ)), daemon=True)
        self.process.start()

    def kill(self) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()


@contextmanager
def listening() -> Iterator[socket.socket]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(512)
        yield listener


def _serve(listener: socket.socket, environ: dict[str, str]) -> None:
    loaded = settings.load(environ)
    logs.configure(format="json", level="error")
    stop = Stop()

    async def run() -> None:
        app = compose.application(loaded, ["ingest"], stop=stop)
        await server.serve(app, listener, stop=stop, drain_seconds=1, unready_seconds=0)

    uvloop.run(run())
