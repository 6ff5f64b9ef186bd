"""Files and directories that Palio makes: for their owner only, and never through a symbolic link.

Events, filters and tokens are private to their owner. So, with any umask:

1. A directory that Palio makes has mode 0700, a file 0600.
2. A file *inside* an archive or a set has the readers of its directory: a directory for a group, or
   for all, was made so that they can read. Only the owner writes to files; the group writes to
   directories if a set's own directory allows it.
3. The path that a user gave may be a link. Names that Palio chooses below it may not: another user
   who may write there could have a file elsewhere overwritten.
4. A file with a secret is refused if others may read it.

All packages that write files use these functions.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedWriter
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from palio.errors import UnsafeFile

_OWNER: Final = 0o700
_READERS: Final = 0o055
"""Of a directory's mode, what others may be given: to enter and to list."""
_GROUP_WRITES: Final = 0o020
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


# --- directories ---


def make_directory(path: Path) -> Path:
    """The directory that a person named, made with those above it if need be.

    One that is there stays as it is, a link too.
    """
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        with suppress(FileExistsError):
            folder.mkdir(_OWNER)
            folder.chmod(_OWNER)
    if not path.is_dir():
        raise UnsafeFile(f"{str(path)!r} is no directory; give another path")
    return path


def check_can_make(path: Path) -> None:
    """Refuse a path at which `make_directory` would fail, or give a directory without access."""
    there = next(each for each in (path, *path.absolute().parents) if each.exists())
    if not there.is_dir():
        raise UnsafeFile(f"{str(there)!r} is no directory")
    if not os.access(there, os.W_OK | os.X_OK):
        raise UnsafeFile(f"{str(there)!r} may not be written")


def make_inside(home: Path, name: str, *, group_writes: bool = False) -> Path:
    """A directory that Palio keeps inside another one, with its readers; refused if it is a link.

    With `group_writes` the group may write to it where it may write to `home`.
    """
    path = home / name
    with suppress(FileExistsError):
        path.mkdir(_OWNER)
        path.chmod(_mode_in(home, group_writes=group_writes))
    check_directory(path)
    return path


def fresh_directory(home: Path) -> Path:
    """A new directory with a name that nobody has, for what is renamed once it is whole."""
    path = Path(mkdtemp(dir=home, prefix="new-"))
    path.chmod(_mode_in(home))
    return path


def check_directory(path: Path) -> None:
    """Refuse a name of Palio's that is a link, or anything but a directory."""
    if not stat.S_ISDIR(path.lstat().st_mode):
        raise UnsafeFile(
            f"{str(path)!r} is a link, or no directory: nothing is written there; "
            "find out who put it there, and remove it"
        )


def is_open_to_others(path: Path) -> bool:
    """True if others than the owner may enter, list or change a directory, or read a file."""
    return bool(path.stat().st_mode & _OTHERS)


def file_mode_in(home: Path) -> int:
    """Return the mode of a new file in a directory: the directory's readers may read it."""
    return _mode_in(home) & 0o644


def _mode_in(home: Path, *, group_writes: bool = False) -> int:
    allowed = _READERS | (_GROUP_WRITES if group_writes else 0)
    return _OWNER | (home.stat().st_mode & allowed)


# --- files ---


def open_new(path: Path, mode: int = 0o600) -> int:
    """A descriptor of a new file; `FileExistsError` if anything has its name, a link too."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, mode)
    os.fchmod(descriptor, mode)  # whatever the umask
    return descriptor


def create(path: Path, mode: int = 0o600) -> BufferedWriter:
    """A new file, to be written, as `open_new` makes it."""
    return os.fdopen(open_new(path, mode), "wb")


def open_own(path: Path) -> int:
    """A descriptor of a file that only Palio writes, made if need be, to be read and written.

    Links, files with a second name, and what is no file are refused. A file that others may read,
    as a copy from a backup may be, is closed to them.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError:
        if path.is_symlink():
            raise _not_ours(path) from None
        raise
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        os.close(descriptor)
        raise _not_ours(path)
    if status.st_mode & _OTHERS:
        with suppress(PermissionError):  # another's, who let us write to it
            os.fchmod(descriptor, 0o600)
    return descriptor


def _not_ours(path: Path) -> UnsafeFile:
    return UnsafeFile(
        f"{str(path)!r} is a link, or no ordinary file: nothing was written to it; "
        "find out who put it there, and remove it"
    )


def append(path: Path, text: str) -> None:
    """Add to a file that holds no secret, made if need be; never through a link."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o644)
    except OSError as error:
        if path.is_symlink():
            raise _not_ours(path) from None
        raise UnsafeFile(f"cannot write to {str(path)!r}: {error.strerror}") from None
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise _not_ours(path)
        file.write(text)


@contextmanager
def replaced(
    path: Path, mode: int = 0o600, *, replace: bool = True, shared: bool = False, sync: bool = True
) -> Iterator[BufferedWriter]:
    """A file to write that takes a name in one step once it is whole, and synced if so asked.

    What had the name before is replaced, not written to. Without `replace` it stays, with a
    `FileExistsError`. `shared`: several processes may do this at a time; what one that was killed
    leaves behind is then nobody's to remove.
    """
    draw = os.urandom(8).hex() + "." if shared else ""
    fresh = path.with_name(f".{path.name}.{draw}unfinished")
    try:
        if not shared:
            fresh.unlink(missing_ok=True)
        with create(fresh, mode) as file:
            yield file
            file.flush()
            if sync:
                os.fsync(file.fileno())
        if replace:
            fresh.replace(path)
        else:
            os.link(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)


# --- turns ---


def locked(path: Path, *, wait: bool = True) -> int | None:
    """A descriptor that holds a lock among processes and threads that name the same file.

    None if another has it and nobody shall wait. The lock is the system's: it ends when the
    descriptor is closed, or with its process, however that ends.
    """
    descriptor = open_own(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


@contextmanager
def held(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """A lock (see `locked`) for the time of the block; False if it was not to be had."""
    descriptor = locked(path, wait=wait)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            os.close(descriptor)


# --- secrets ---


def read_secret(path: Path, subject: str) -> bytes:
    """A file that others may not read; `what` it holds, for the error.

    A file of another owner (mounted by the system, such as a secret of Kubernetes) may be read by
    its group, for that is how it is given to this process, but not by everyone.
    """
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        forbidden = _OTHERS if status.st_uid == os.geteuid() else stat.S_IRWXO
        if status.st_mode & forbidden:
            raise UnsafeFile(
                f"{subject} {str(path)!r} may be read by others "
                f"(mode {stat.S_IMODE(status.st_mode):04o}); chmod 600 it"
            )
        return file.read()
