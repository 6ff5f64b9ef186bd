"""A network of the tests' own: namespaces whose interfaces hang at one bridge."""

from __future__ import annotations

import json
import shutil
import subprocess
from contextlib import ExitStack
from types import TracebackType
from typing import Final, Self

from benchmarks.namespaces import Namespace, why_not

INTERFACE: Final = "eth0"
"""What the interface of each is called."""


class Bridge:
    """Namespaces, each with an address of IPv4 (`10.77.x.y`) and one of IPv6 (`fd77::n`)."""

    def __init__(self, count: int) -> None:
        self.spaces: list[Namespace] = []
        self._open = ExitStack()
        try:
            self._middle = self._open.enter_context(Namespace())
            _ip(self._middle, "link add bridge type bridge mcast_snooping 0")
            _ip(self._middle, "link set bridge up")
            for number in range(1, count + 1):
                self._add(number)
        except BaseException:
            self._open.close()
            raise

    @staticmethod
    def address(place: int, version: int = 4) -> str:
        """The address of the namespace at a place, from 0."""
        number = place + 1
        return f"10.77.{number >> 8}.{number & 255}" if version == 4 else f"fd77::{number:x}"

    def ip(self, place: int, command: str) -> str:
        """What the command `ip` says in a namespace."""
        return _ip(self.spaces[place], command)

    def sent_bytes(self, place: int) -> int:
        """What left a namespace, as its interface counts."""
        told = json.loads(self.ip(place, f"-json -stats link show {INTERFACE}"))
        return int(told[0]["stats64"]["tx"]["bytes"])

    def _add(self, number: int) -> None:
        space = self._open.enter_context(Namespace())
        self.spaces.append(space)
        end = f"end{number}"
        _ip(self._middle, f"link add {end} type veth peer name {INTERFACE} netns {space.path}")
        _ip(self._middle, f"link set {end} master bridge up")
        _ip(space, f"link set {INTERFACE} up")
        _ip(space, f"addr add {self.address(number - 1)}/16 dev {INTERFACE}")
        _ip(space, f"addr add {self.address(number - 1, 6)}/64 dev {INTERFACE} nodad")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()


def why_no_bridge() -> str:
    """Why this machine gives us no bridge; empty where it does."""
    reason = why_not()
    if reason:
        return reason
    if shutil.which("ip") is None:
        return "there is no command ip"
    try:
        with Bridge(1):
            return ""
    except subprocess.CalledProcessError as error:
        return str(error.stderr)


def _ip(space: Namespace, command: str) -> str:
    run = subprocess.run(
        [*space.launcher, "ip", *command.split()], check=True, capture_output=True, text=True
    )
    return run.stdout
