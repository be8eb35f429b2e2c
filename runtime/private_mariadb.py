"""A MariaDB of our own, for development, tests and benchmarks: durable, READ COMMITTED, on loopback only.

Works as any user, root included. Half a set-up, a stale pid file or an unclean stop are mended by the next start.
"""

import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from runtime import children, ports
from runtime.children import Child, Command
from runtime.private_server import binary, greets, private_directory, socket_path, write_private
from runtime.problems import Problem
from runtime.shutdown import Stop

PACKAGES = "mariadb-server-core mariadb-client-core"
_INSTEAD = "NOVEL_DATABASE_URL"

_CONFIGURATION = """\
# Written anew at each start.
[mariadbd]
datadir = "{directory}/data"
# Not the common one: a server that starts deletes the temporary tables it finds there, whosesoever they are.
tmpdir = "{directory}/tmp"
socket = "{socket}"
port = {port}
bind-address = 127.0.0.1
pid-file = "{directory}/server.pid"
log-error = "{directory}/error.log"
init-file = "{directory}/provision.sql"
user = {user}
skip-name-resolve
character-set-server = utf8mb4
collation-server = utf8mb4_unicode_520_ci
transaction-isolation = READ-COMMITTED
default-time-zone = +00:00
innodb-flush-log-at-trx-commit = 1
innodb-buffer-pool-size = {buffer_pool_mb}M
innodb-log-file-size = 256M
max-allowed-packet = 256M
max-connections = 400
"""


@dataclass(frozen=True, slots=True)
class PrivateMariaDB:
    """The files and the port of one private server. `provisioning` is the SQL that each start runs first."""

    directory: Path
    provisioning: str
    buffer_pool_mb: int = 256

    @property
    def socket(self) -> Path:
        return socket_path(self.directory, "server.sock")

    @property
    def port(self) -> int:
        """The port of the latest start."""
        return int((self.directory / "port").read_text())

    def command(self) -> Command:
        server = binary("mariadbd", package=PACKAGES, instead=_INSTEAD)
        defaults = f"--defaults-file={self.directory}/server.cnf"
        return Command(
            name="mariadb",
            argv=(server, defaults),
            output=self.directory / "error.log",
            pid_file=self.directory / "child.pid",
            marker=defaults,
            stop_seconds=60,
            hears=self._answers,  # told to end during its start, it hangs; killed, it recovers at the next
        )

    def prepare(self) -> None:
        """Make everything ready for a start: leftovers ended, data folder there, port chosen, files written."""
        private_directory(self.directory)
        private_directory(self.directory / "tmp")
        children.end_leftover(self.command())
        self.socket.unlink(missing_ok=True)
        if not (self.directory / "data").exists():
            self._create_data()  # before the port is chosen: in all that time somebody else could take it
        configuration = _CONFIGURATION.format(
            directory=_escaped(self.directory),
            socket=_escaped(self.socket),
            port=ports.remembered(self.directory / "port"),
            user=user_name(),
            buffer_pool_mb=self.buffer_pool_mb,
        )
        write_private(self.directory / "server.cnf", configuration)
        write_private(self.directory / "provision.sql", self.provisioning)

    def wait(self, child: Child, *, stop: Stop | None = None) -> None:
        """Wait until it accepts connections, or say why it does not."""
        children.wait_until(self._answers, child, stop=stop)

    def _answers(self) -> bool:
        return greets(self.socket, send=b"", expect=b"MariaDB")  # protocol 10 greets with its version

    def _create_data(self) -> None:
        install = binary("mariadb-install-db", package=PACKAGES, instead=_INSTEAD)
        draft = self.directory / "data.new"
        shutil.rmtree(draft, ignore_errors=True)
        user = user_name()
        done = subprocess.run(
            (
                install,
                "--no-defaults",
                f"--user={user}",
                f"--datadir=./{draft.name}",  # relative: the script stumbles over spaces in a path
                # Root is whoever runs the server, by the socket and without a password, and nobody else.
                "--auth-root-authentication-method=socket",
                f"--auth-root-socket-user={user}",
                "--skip-test-db",
                "--skip-name-resolve",
            ),
            capture_output=True,
            text=True,
            cwd=self.directory,
            env={
                **os.environ,
                "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin",
                "TMPDIR": str((self.directory / "tmp").absolute()),
            },
            check=False,
        )
        if done.returncode:
            raise Problem(f"mariadb-install-db failed:\n{(done.stderr or done.stdout).strip()[-2000:]}")
        draft.replace(self.directory / "data")


def user_name() -> str:
    """Who we are to the kernel. USER and LOGNAME may name another, as after `su` or `sudo -E`."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a container may run under a number that has no name
        return str(os.geteuid())


def _escaped(path: Path) -> str:
    """As an option file wants a path between quotes."""
    return str(path).replace("\\", "\\\\").replace('"', '\\"')
