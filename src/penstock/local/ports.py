"""Ports on 127.0.0.1: is one free, and which one to take."""

from __future__ import annotations

import random
import socket

HOST = "127.0.0.1"

# Below the range from which kernels take ports for outgoing connections: a remembered port must still be free
# after a restart, and a client of the very same server could otherwise be sitting on it.
_RANGE = range(20_000, 30_000)


def is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        # As the servers do it: a connection of the last run that lingers in TIME_WAIT does not block them.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((HOST, port))
        except OSError:
            return False
    return True


def pick(taken: set[int]) -> int:
    """A free port that is not in `taken`."""
    for port in random.sample(_RANGE, len(_RANGE)):
        if port not in taken and is_free(port):
            return port
    raise OSError(f"no free port in {_RANGE.start}-{_RANGE.stop - 1}")


def accepts(port: int) -> bool:
    """Whether something listens there."""
    try:
        with socket.create_connection((HOST, port), timeout=1):
            return True
    except OSError:
        return False
