"""The kernels on disk: whether all of them are there, and who compiles those that are not.

numba keeps each compiled function in a file of its own. Nobody can see from these whether loading
all of them takes a second or compiling takes a minute, so whoever has compiled everything leaves a
*mark* beside them. It names what the compiled code depends on: sources, versions, processor.

1. With the right mark there, everybody loads, at once if they like.
2. Without it one process at a time compiles, under a lock. The lock is the system's: it is free as
   soon as its holder ends, however that ends.
3. Where no file can be kept, everybody compiles for themselves, as numba itself then does.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeVar

from palio import files
from palio.errors import UnsafeFile

__all__ = ["KernelCache"]

Loaded = TypeVar("Loaded")

LOCK: Final = "palio.lock"

NO_FILES: Final = (OSError, UnsafeFile)
"""What is raised where nothing can be read, written or locked."""


class KernelCache:
    """Where the kernels of a room are kept, as far as they are."""

    def __init__(self, room: str, directory: Path | None, mark: str) -> None:
        self._directory = directory
        self._path = None if directory is None else directory / f"palio-{room}.compiled"
        self._mark = mark.encode()

    @classmethod
    def of(cls, room: str, modules: Iterable[ModuleType], kernel: Any) -> KernelCache:
        """The cache of the kernels of some modules, of which `kernel` is one."""
        from palio.matching.kernels import jit

        place = jit.cache_path(kernel)
        digest = sha256(jit.target().encode())
        try:
            for module in sorted(modules, key=lambda each: each.__name__):
                digest.update(Path(str(module.__file__)).read_bytes())
        except OSError:  # such as modules in a zip file
            place = None
        return cls(room, place, digest.hexdigest())

    def is_whole(self) -> bool:
        """Whether every kernel is there, compiled from these sources for this processor."""
        try:
            return self._path is not None and self._path.read_bytes() == self._mark
        except OSError:
            return False

    def load(self, everything: Callable[[], Loaded], *, wait: bool = True) -> Loaded | None:
        """Do what loads or compiles all kernels, when it is this process's turn to.

        None if another process compiles and this one shall not wait for it.
        """
        if self._directory is None or self.is_whole():
            return everything()
        with ExitStack() as turn:
            try:
                is_ours = turn.enter_context(files.held(self._directory / LOCK, wait=wait))
            except NO_FILES:
                return everything()
            if not is_ours:
                return None
            if self.is_whole():
                turn.close()  # another process has compiled meanwhile; all may load at once
                return everything()
            self._remove_unreadable()
            loaded = everything()
            self._leave_mark()
            return loaded

    def _remove_unreadable(self) -> None:
        """Remove the lists of compiled functions that name a type which is no more: numba would
        fail where it reads one, such as after an upgrade.
        """
        assert self._directory is not None
        with suppress(*NO_FILES):
            for path in self._directory.glob("*.nbi"):
                if not _is_readable(path.read_bytes()):
                    path.unlink()

    def _leave_mark(self) -> None:
        assert self._path is not None
        try:
            with files.replaced(self._path, shared=True, sync=False) as file:
                file.write(self._mark)
        except NO_FILES:
            return  # the next process looks at every file, and finds it


def _is_readable(index: bytes) -> bool:
    """Whether numba can read one of its lists: two pickles, its version and the content."""
    stream = BytesIO(index)
    try:
        pickle.load(stream)
        pickle.load(stream)
    except (ArithmeticError, AttributeError, EOFError, ImportError, LookupError, TypeError):
        return False
    except (ValueError, pickle.PickleError):
        return False
    return True
