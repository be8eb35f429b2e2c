"""Free TCP ports on loopback, remembered where an address should stay the same between starts."""

import random
import socket
from pathlib import Path

# Below the kernel's ephemeral range: above it, a client socket in TIME-WAIT can hold the port.
LOWEST, HIGHEST = 20_000, 32_000


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def find() -> int:
    for port in random.sample(range(LOWEST, HIGHEST), 200):
        if is_free(port):
            return port
    raise OSError(f"no free port between {LOWEST} and {HIGHEST} on 127.0.0.1")


def remembered(file: Path) -> int:
    """The port written in the file if it is free, else a new one, which is then written there."""
    try:
        port = int(file.read_text())
    except (OSError, ValueError):
        port = 0
    if not (LOWEST <= port < HIGHEST and is_free(port)):
        port = find()
        file.write_text(f"{port}\n")
    return port
