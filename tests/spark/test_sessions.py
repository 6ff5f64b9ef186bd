from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest

from palio.errors import InvalidInput
from palio.spark import MissingDependency, session, sessions
from palio.spark.sessions import first_cause

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIFE: Final = """
import sys
import palio.spark
assert "pyspark" not in sys.modules
spark = palio.spark.session("local[1]", spark_ui_showConsoleProgress=False)
from pyspark import SparkContext
process = SparkContext._gateway.proc
assert spark.range(3).count() == 3
palio.spark.stop(spark)
assert process.returncode is not None
again = palio.spark.session("local[1]", spark_ui_showConsoleProgress=False)
assert again.range(3).count() == 3
palio.spark.stop(again)
"""


@pytest.mark.nightly  # two more starts of Spark
def test_a_session_ends_with_its_jvm_and_another_may_follow() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", LIFE], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    noise = [line for line in done.stderr.splitlines() if "incubator" not in line]
    assert noise == []


def test_it_has_what_the_workers_need(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.python.daemon.module") == "palio.spark.daemon"
    assert spark.conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert os.environ["PYSPARK_PYTHON"]


def test_the_running_session_is_taken(spark: SparkSession) -> None:
    assert session() is spark
    assert session(spark_sql_shuffle_partitions=3) is spark
    assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
    named: dict[str, Any] = {"spark.sql.shuffle.partitions": 2}
    session(**named)
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


@pytest.mark.usefixtures("spark")
def test_what_a_running_session_cannot_become() -> None:
    with pytest.raises(InvalidInput, match="stop it before you ask for one on yarn"):
        session("yarn")
    with pytest.raises(InvalidInput, match=r"spark\.driver\.memory cannot change"):
        session(spark_driver_memory="7g")


def test_without_pyspark_the_message_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(MissingDependency, match=r"pip install 'palio\[spark\]'"):
        session()


def test_the_logging_file_is_written_once() -> None:
    path = sessions._logging_file()
    stamp = path.stat().st_mtime_ns
    assert sessions._logging_file() == path
    assert path.stat().st_mtime_ns == stamp
    path.write_text("something else")
    assert sessions._logging_file().read_text() == sessions._LOGGING


def test_importing_the_room_loads_no_spark() -> None:
    program = (
        "import sys, palio.spark.matches, palio.spark.sequencing, palio.spark.workers\n"
        "assert 'pyspark' not in sys.modules\n"
        "assert 'palio.spark.sets' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    ("trace", "cause"),
    [
        ("one line", "one line"),
        ("x\n: y\n  at z\nCaused by: a: b\n  at c\nCaused by: d: e\n  at f", "d: e"),
        (
            "x\n  palio.errors.InvalidInput: no set\nCaused by: d",
            "palio.errors.InvalidInput: no set",
        ),
        (
            "a.B: Traceback\n b.C: palio.errors.InvalidInput: no set",
            "palio.errors.InvalidInput: no set",
        ),
        ("", ""),
    ],
)
def test_the_line_of_a_trace_that_tells(trace: str, cause: str) -> None:
    assert first_cause(trace) == cause
