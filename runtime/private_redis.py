"""A Redis of our own, for development, tests and benchmarks: on loopback, with a password, kept on disk."""

from dataclasses import dataclass
from pathlib import Path

from runtime import children, ports
from runtime.children import Child, Command
from runtime.private_server import (
    binary,
    greets,
    private_directory,
    remembered_secret,
    socket_path,
    write_private,
)
from runtime.shutdown import Stop

PACKAGES = "redis-server"

_CONFIGURATION = """\
# Written anew at each start.
bind 127.0.0.1
port {port}
unixsocket {socket}
unixsocketperm 700
requirepass {password}
dir {directory}
pidfile {pid_file}
daemonize no
# The command line keeps naming this file, so that a leftover of a crash is recognised.
set-proc-title no
appendonly yes
appendfsync everysec
save ""
maxmemory 256mb
maxmemory-policy volatile-lru
"""


@dataclass(frozen=True, slots=True)
class PrivateRedis:
    """The files and the port of one private server."""

    directory: Path

    @property
    def socket(self) -> Path:
        return socket_path(self.directory, "server.sock")

    @property
    def url(self) -> str:
        """Where the latest start listens, password included."""
        password = remembered_secret(self.directory / "password")
        return f"redis://:{password}@127.0.0.1:{int((self.directory / 'port').read_text())}/0"

    def command(self) -> Command:
        configuration = str(self.directory / "server.conf")
        return Command(
            name="redis",
            argv=(binary("redis-server", package=PACKAGES, instead="NOVEL_REDIS_URL"), configuration),
            output=self.directory / "server.log",
            pid_file=self.directory / "child.pid",
            marker=configuration,
        )

    def prepare(self) -> None:
        """Make everything ready for a start: leftovers ended, port chosen, configuration written."""
        private_directory(self.directory)
        children.end_leftover(self.command())
        self.socket.unlink(missing_ok=True)
        configuration = _CONFIGURATION.format(
            directory=_quoted(self.directory),
            socket=_quoted(self.socket),
            pid_file=_quoted(self.directory / "server.pid"),
            port=ports.remembered(self.directory / "port"),
            password=remembered_secret(self.directory / "password"),
        )
        write_private(self.directory / "server.conf", configuration)

    def wait(self, child: Child, *, stop: Stop | None = None) -> None:
        """Wait until it serves: while it still loads its data, it answers, but not with PONG."""
        password = remembered_secret(self.directory / "password")
        ping = f"AUTH {password}\r\nPING\r\n".encode()
        children.wait_until(lambda: greets(self.socket, send=ping, expect=b"PONG"), child, stop=stop)


def _quoted(path: Path) -> str:
    """As the configuration file wants a path with spaces."""
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
