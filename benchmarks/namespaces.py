"""Network namespaces of our own: each has a loopback that nobody outside it can reach.

A socket belongs to the namespace in which it was made, whoever uses it later. So a process that may
enter namespaces joins them with sockets alone (`relay.Relay`), and nothing has to be cleaned up:
a namespace ends with the last process and the last open file in it.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Self

_CLONE_NEWNET: Final = 0x40000000
_SIOCSIFFLAGS: Final = 0x8914
_IFF_UP: Final = 0x1
_OWN: Final = "/proc/thread-self/ns/net"


def _call(name: str, *arguments: int) -> None:
    """A call of the system that Python 3.11 has no name for."""
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


class Namespace:
    """A network of its own, with its loopback up, until it is closed."""

    def __init__(self) -> None:
        home = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _call("unshare", _CLONE_NEWNET)
            try:
                self._file = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
                    flags = struct.pack("16sH22x", b"lo", _IFF_UP)
                    fcntl.ioctl(any_socket, _SIOCSIFFLAGS, flags)
            finally:
                _call("setns", home, _CLONE_NEWNET)
        finally:
            os.close(home)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Sockets that are made in the block belong to the namespace. No `await` in it: the thread
        would do other things there.
        """
        home = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _call("setns", self._file, _CLONE_NEWNET)
            try:
                yield
            finally:
                _call("setns", home, _CLONE_NEWNET)
        finally:
            os.close(home)

    @property
    def launcher(self) -> tuple[str, ...]:
        """What to put before a command so that it runs in the namespace."""
        return ("nsenter", f"--net={self.path}")

    @property
    def path(self) -> str:
        """The file that stands for it, for other processes."""
        return f"/proc/{os.getpid()}/fd/{self._file}"

    def close(self) -> None:
        """Let go of it; processes in it keep it."""
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def why_not() -> str:
    """Why this machine gives us no namespaces; empty where it does."""
    if shutil.which("nsenter") is None:
        return "there is no command nsenter"
    try:
        with Namespace() as found, found.inside():
            return ""
    except (OSError, AttributeError) as error:  # not permitted; not Linux
        return str(error)
