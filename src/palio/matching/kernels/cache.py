"""Keep kernels on disk, and have one process at a time compile those that are missing.

numba keeps each compiled function in a separate file. These do not show whether loading all of them
takes a second or compiling takes a minute, so a process that has compiled everything leaves a
*mark* beside them. It names what the compiled code depends on: sources, versions, processor.

1. With the right mark there, everybody loads, at once if they like.
2. Without it one process at a time compiles, under a lock. The lock is the system's: it is free as
   soon as its holder ends, however that ends.
3. Where no file can be kept, everybody compiles for themselves, as numba itself then does.

numba compares the file of a function alone, and takes no notice of what is copied into it from
others. So a process that begins to compile removes what was compiled of other sources, and leaves a
mark that names these: a process that continues after one that died, or compiles for another
processor, finds by it what is still of use.
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

Loaded = TypeVar("Loaded")

LOCK: Final = "palio.lock"

NO_FILES: Final = (OSError, UnsafeFile)
"""What is raised where nothing can be read, written or locked."""


class KernelCache:
    """The directory in which the kernels of a package are kept, if there is one."""

    def __init__(
        self, package: str, directory: Path | None, sources: str, target: str = "any"
    ) -> None:
        self._directory = directory
        self._path = None if directory is None else directory / f"palio-{package}.compiled"
        self._sources = f"{sources}\n".encode()
        self._mark = self._sources + target.encode()

    @classmethod
    def of(cls, package: str, modules: Iterable[ModuleType], kernel: Any) -> KernelCache:
        """The cache of the kernels of some modules, of which `kernel` is one."""
        from palio.matching.kernels import jit, records

        place = jit.cache_path(kernel)
        digest = sha256()
        try:
            for module in sorted((*modules, jit, records), key=lambda module: module.__name__):
                digest.update(Path(str(module.__file__)).read_bytes())
        except OSError:  # such as modules in a zip file
            place = None
        return cls(package, place, digest.hexdigest(), jit.target())

    def is_whole(self) -> bool:
        """Check whether every kernel is there, compiled from these sources for this processor."""
        return self._read_mark() == self._mark

    def _read_mark(self) -> bytes:
        try:
            return b"" if self._path is None else self._path.read_bytes()
        except OSError:
            return b""

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
            self._remove_useless(keep=self._read_mark().startswith(self._sources))
            self._leave_mark(self._sources)
            loaded = everything()
            self._leave_mark(self._mark)
            return loaded

    def _remove_useless(self, *, keep: bool) -> None:
        """Remove the lists of compiled functions: all of them, or those that numba cannot read."""
        assert self._directory is not None
        with suppress(*NO_FILES):
            for path in self._directory.glob("*.nbi"):
                if not keep or not _is_readable(path.read_bytes()):
                    path.unlink()

    def _leave_mark(self, mark: bytes) -> None:
        assert self._path is not None
        try:
            with files.replaced(self._path, shared=True, sync=False) as file:
                file.write(mark)
        except NO_FILES:
            return  # the next process looks at every file, and finds it


def _is_readable(index: bytes) -> bool:
    """Check whether numba can read one of its lists: two pickles, its version and the content."""
    stream = BytesIO(index)
    try:
        pickle.load(stream)
        pickle.load(stream)
    except (ArithmeticError, AttributeError, EOFError, ImportError, LookupError, TypeError):
        return False
    except (ValueError, pickle.PickleError):
        return False
    return True
