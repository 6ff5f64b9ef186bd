"""A real standalone cluster of Spark: a master and workers, each a process of its own on loopback.

A worker, its executors and what they run in Python end together, as a machine would: `kill` sends
SIGKILL to the whole process group. (Spark's Python processes leave that group and end by themselves
when their executor's pipe does.)
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Condition, Event, Thread
from time import monotonic
from typing import Any, Final

PATIENCE_S: Final = 240.0
"""For anything that a busy machine may take its time for."""

MEMORY: Final = "512m"
"""Of each executor."""


QUICK_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of JVMs that live for seconds: they start in half of the time."""


class Daemon:
    """A JVM of Spark's in a process group of its own, and what it has logged."""

    def __init__(self, home: Path, *arguments: str) -> None:
        home.mkdir(parents=True)
        self.home = home
        self._lines: list[str] = []
        self._has_ended = False
        self._more = Condition()
        self.process = subprocess.Popen(
            [str(spark_home() / "bin" / "spark-class"), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=home,
            env=environment(),
            start_new_session=True,
        )
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def said(self, pattern: str) -> re.Match[str]:
        """The first line that has the pattern, waited for."""
        until = monotonic() + PATIENCE_S
        seen = 0
        with self._more:
            while True:
                for line in self._lines[seen:]:
                    if found := re.search(pattern, line):
                        return found
                seen = len(self._lines)
                if self._has_ended or not self._more.wait(until - monotonic()):
                    log = "\n".join(self._lines[-60:])
                    raise AssertionError(f"{self.home.name} never said {pattern!r}:\n{log}")

    def kill(self) -> None:
        """SIGKILL to it and to what it has started."""
        if self.process.returncode is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self._reader.join()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr:
            for line in self.process.stderr:
                with self._more:
                    self._lines.append(line.rstrip())
                    self._more.notify_all()
        with self._more:
            self._has_ended = True
            self._more.notify_all()


class Cluster:
    """A master, and workers of one core each."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.workers: list[Daemon] = []
        master = "org.apache.spark.deploy.master.Master"
        ports = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        self.master = Daemon(home / "master", master, *ports)
        self.url = self.master.said(r"Starting Spark master at (spark://\S+)")[1]

    def add_workers(self, count: int) -> None:
        """Workers that have found their master."""
        for number in range(len(self.workers), len(self.workers) + count):
            home = self.home / f"worker{number}"
            given = ("--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", MEMORY)
            worker = "org.apache.spark.deploy.worker.Worker"
            self.workers.append(Daemon(home, worker, *given, "--work-dir", str(home), self.url))
        for each in self.workers[-count:]:
            each.said("Successfully registered with master")

    def stop(self) -> None:
        """Kill all of it."""
        for daemon in [*self.workers, self.master]:
            daemon.kill()


@contextmanager
def cluster(home: Path, workers: int = 2) -> Iterator[Cluster]:
    """A cluster that ends with the block, whatever happens there."""
    running = Cluster(home)
    try:
        running.add_workers(workers)
        yield running
    finally:
        running.stop()


def spark_home() -> Path:
    """Where pyspark has Spark's programs and jars."""
    import pyspark

    return Path(pyspark.__file__).parent


def environment() -> dict[str, str]:
    """What a process of the cluster, or a driver, runs in."""
    from palio.spark.sessions import java_home

    return {
        **os.environ,
        "JAVA_HOME": str(java_home()),
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "1g",
        "SPARK_DAEMON_JAVA_OPTS": f"{QUICK_JAVA} -Dspark.master.rest.enabled=false",
        "PYTHONPATH": os.pathsep.join(sys.path),  # of workers too: tests, and palio from a checkout
    }


def await_that(condition: Callable[[], Any], what: str) -> Any:
    """What a condition gives once that is true."""
    until = monotonic() + PATIENCE_S
    while not (found := condition()):
        assert monotonic() < until, f"{what}: not within {PATIENCE_S:g} s"
        Event().wait(0.05)
    return found
