"""By Spark Connect: what needs no JVM of one's own works as it does with one."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from pyspark.errors import PySparkAttributeError

from palio.spark.events import CONNECT_TASKS, _most_tasks
from palio.spark.matches import HOWS
from tests.spark import cluster_job
from tests.spark.cluster import PATIENCE_S, QUICK_JAVA, Daemon, environment
from tests.spark.oracle import answers, drawn_events, drawn_subscriptions

SERVER: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"

needs_connect = pytest.mark.skipif(find_spec("grpc") is None, reason="pip install 'palio[connect]'")

WITHOUT: Final = """
import sys
sys.modules["grpc"] = None
import palio.spark
try:
    palio.spark.session("sc://127.0.0.1:1")
except palio.spark.MissingDependency as error:
    print(error)
"""

SESSIONS: Final = """
import sys
import palio.spark
from palio.errors import InvalidInput

def refusal(*master, **conf):
    try:
        palio.spark.session(*master, **conf)
    except InvalidInput as error:
        return str(error)

url = sys.argv[1]
spark = palio.spark.session(url, spark_sql_ansi_enabled=False)
assert palio.spark.session() is palio.spark.session(url) is spark
assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
assert spark.conf.get("spark.sql.ansi.enabled") == "false"
assert "running; stop it before you ask for one on local[2]" in refusal("local[2]")
assert "stop it before you ask for one on sc://elsewhere" in refusal("sc://elsewhere:1")
assert "spark.driver.memory cannot change" in refusal(spark_driver_memory="3g")
palio.spark.stop(spark)
"""

STREAM: Final = """
import sys
from pathlib import Path
import pyarrow as pa, pyarrow.parquet as pq
import palio.spark

url, home = sys.argv[1], Path(sys.argv[2])
spark = palio.spark.session(url)
standing = palio.spark.subscriptions([{"id": 1, "filter": "n < 5"}], home / "set")
(home / "source").mkdir()
stream = spark.readStream.schema("n long, m long").parquet(str(home / "source"))
found = palio.spark.match(stream, standing, columns=["n"]).writeStream.format("parquet")
query = found.option("checkpointLocation", str(home / "checkpoint")).start(str(home / "seen"))
for first in (0, 10):
    numbers = list(range(first, first + 10))
    pq.write_table(pa.table({"n": numbers, "m": numbers}), home / "source" / f"{first}.parquet")
    query.processAllAvailable()
    standing.refresh([{"id": 2, "filter": "m >= 18"}])
query.stop()
rows = sorted(map(tuple, spark.read.parquet(str(home / "seen")).collect()))
assert rows == [(n, 1) for n in range(5)] + [(18, 2), (19, 2)], rows
log = spark.createDataFrame([("h", n, n % 2) for n in range(4)], "host string, at long, n long")
log = log.selectExpr("host", "timestamp_seconds(at) AS at", "n")
hits = palio.spark.sequences(log, {1: "n = 0 THEN n = 1 WITHIN 2s"}, by="host", time="at")
assert hits.count() > 0
archive = spark.read.format("palio").load(str(home / "source"))
assert archive.where("n < 3").count() == 3
palio.spark.stop(spark)
"""


def run(home: Path, program: str, *arguments: str) -> str:
    """What a program prints, in a process of its own: one that has used Connect stays with it."""
    path = home / "program.py"  # without a file PySpark ends in silence where a package is missing
    path.write_text(program)
    done = subprocess.run(
        [sys.executable, str(path), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server."""
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.extraJavaOptions": QUICK_JAVA,
        "spark.pyspark.python": sys.executable,
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    given = [part for item in settings.items() for part in ("--conf", "=".join(item))]
    submit = ("org.apache.spark.deploy.SparkSubmit", "--class", SERVER, "--master", "local[2]")
    daemon = Daemon(
        tmp_path_factory.mktemp("connect") / "server", *submit, *given, "spark-internal"
    )
    try:
        yield "sc://" + daemon.said(r"Spark Connect server started at: (\S+)")[1]
    finally:
        daemon.kill()


def test_without_its_packages_the_message_says_what_to_install(tmp_path: Path) -> None:
    told = run(tmp_path, WITHOUT)
    assert "grpcio" in told
    assert "pip install 'palio[connect]'" in told


def test_where_the_cores_are_not_known_tasks_are_limited() -> None:
    class Remote:
        @property
        def sparkContext(self) -> Any:  # noqa: N802  # Spark's name
            raise PySparkAttributeError(
                errorClass="JVM_ATTRIBUTE_NOT_SUPPORTED",
                messageParameters={"attr_name": "sparkContext"},
            )

    remote: Any = Remote()
    assert _most_tasks(remote) == CONNECT_TASKS


@pytest.mark.nightly
@needs_connect
def test_a_session_is_one_at_a_server(server: str, tmp_path: Path) -> None:
    run(tmp_path, SESSIONS, server)


@pytest.mark.nightly
@needs_connect
def test_every_kind_of_answer_is_that_of_the_oracle(server: str, tmp_path: Path) -> None:
    draw = random.Random(7)
    events, subscriptions = drawn_events(draw), drawn_subscriptions(draw)
    pq.write_table(events, tmp_path / "events.parquet", row_group_size=200)
    rows = tmp_path / "subscriptions.jsonl"
    rows.write_text("\n".join(map(json.dumps, subscriptions)))
    program = Path(cluster_job.__file__).read_text()
    given = (str(tmp_path / "events.parquet"), str(rows), str(tmp_path), ",".join(HOWS))
    run(tmp_path, program, server, *given)
    found: dict[str, Any] = json.loads((tmp_path / "found.json").read_text())
    for how, expected in answers(events, subscriptions).items():
        assert found[how] == expected
        assert found[f"{how}, path"] == expected
    assert len(found) == 2 * len(HOWS)


@pytest.mark.nightly
@needs_connect
def test_a_stream_takes_up_new_subscriptions(server: str, tmp_path: Path) -> None:
    run(tmp_path, STREAM, server, str(tmp_path))
