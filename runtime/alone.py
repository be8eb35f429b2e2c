"""One process at a time: a lock on a file that names its holder. The kernel frees it, however the holder ends."""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from runtime.problems import Problem


@contextlib.contextmanager
def alone(path: Path, *, otherwise: Callable[[str], str]) -> Iterator[None]:
    """Hold the lock for the block, or raise a Problem; `otherwise` words it, given the holder's process id."""
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise Problem(otherwise(file.read().strip() or "unknown")) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
