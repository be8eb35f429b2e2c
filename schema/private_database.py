"""A database on a private MariaDB: for `novel up`, tests and benchmarks."""

from pathlib import Path

from runtime.addresses import DatabaseAddress
from runtime.children import Child, start
from runtime.private_mariadb import PrivateMariaDB
from runtime.private_server import private_directory, remembered_secret
from schema import provision

USER = "novel"
HOST = "127.0.0.1"


class PrivateDatabase:
    """A server of our own with one database on it, and its user. Everything is below `directory`."""

    def __init__(
        self,
        directory: Path,
        *,
        database: str = "novel",
        and_databases_like_it: bool = False,
        buffer_pool_mb: int = 256,
    ) -> None:
        self.directory = private_directory(directory.absolute())
        self._database = database
        script = provision.script(self._address(port=0), and_databases_like_it=and_databases_like_it)
        self.server = PrivateMariaDB(self.directory, script, buffer_pool_mb)

    @property
    def address(self) -> DatabaseAddress:
        """Where it listens since its latest start."""
        return self._address(port=self.server.port)

    def start(self) -> Child:
        """Start it and wait until it answers."""
        self.server.prepare()
        child = start(self.server.command())
        self.server.wait(child)
        return child

    def _address(self, *, port: int) -> DatabaseAddress:
        password = remembered_secret(self.directory / "password")
        return DatabaseAddress(HOST, port, USER, password, self._database)
