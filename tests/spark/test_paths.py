"""Events by path are those that Spark reads there: `match` of both gives the same.

Files are drawn: their types, values, nulls, row groups, names, and who wrote them.
"""

from __future__ import annotations

import datetime as dt
import random
import warnings
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from palio.errors import InvalidInput
from palio.spark import match, rejects
from tests.conftest import NIGHTLY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UTC: Final = dt.UTC

FILES: Final = 300 if NIGHTLY else 4

ROWS: Final = 40

INSTANTS: Final = [
    dt.datetime(2, 1, 1, tzinfo=UTC),
    dt.datetime(1600, 2, 29, 1, tzinfo=UTC),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    dt.datetime(2026, 3, 8, 7, 30, tzinfo=UTC),  # as the clocks of New York go forward
    dt.datetime(2026, 11, 1, 5, 30, tzinfo=UTC),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
]
LATER: Final = INSTANTS[2:5]  # a nanosecond's range


def whole(bits: int, *, signed: bool = True) -> list[int]:
    """Both ends and what is near the middle."""
    least, most = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return [least, least + 1, 0, 1, 2, most // 2, most // 2 + 1, most - 1, most]


NUMBERS: Final = [0.0, -0.0, 1.0, 1.5, -3.25, float("inf"), float("-inf"), float("nan")]
TEXTS: Final = ["", "a", "A", "Ab", "é", "\U0001f600", "a%b"]
BYTES: Final = [b"", b"a", b"\0\xff"]
MONEY: Final = [Decimal("0.10"), Decimal("-1.00"), Decimal("12345678.90")]

KINDS: Final[dict[str, tuple[Any, list[Any]]]] = {
    **{f"i{bits}": (getattr(pa, f"int{bits}")(), whole(bits)) for bits in (8, 16, 32, 64)},
    **{
        f"u{bits}": (getattr(pa, f"uint{bits}")(), whole(bits, signed=False))
        for bits in (8, 16, 32, 64)
    },
    "f32": (pa.float32(), NUMBERS),
    "f64": (pa.float64(), [*NUMBERS, 5e-324, 1.7976931348623157e308]),
    "flag": (pa.bool_(), [True, False]),
    "text": (pa.utf8(), TEXTS),
    "large": (pa.large_utf8(), TEXTS),
    "category": (pa.dictionary(pa.int32(), pa.utf8()), TEXTS),
    "raw": (pa.binary(), BYTES),
    "fixed": (pa.binary(2), [b"ab", b"\0\xff"]),
    "d10": (pa.decimal128(10, 2), MONEY),
    "d38": (pa.decimal128(38, 4), [*MONEY, Decimal("12345678901234567.5")]),
    "d20": (pa.decimal128(20, 0), [Decimal(2**63 - 1), Decimal(2**63), Decimal(-5)]),
    "day": (pa.date32(), [each.date() for each in INSTANTS]),
    "at": (pa.timestamp("us", "UTC"), INSTANTS),
    "zoned": (pa.timestamp("ms", "America/New_York"), LATER[1:]),
    "local": (pa.timestamp("us"), [each.replace(tzinfo=None) for each in INSTANTS]),
    "span": (pa.duration("us"), [dt.timedelta(0), dt.timedelta(days=-1), dt.timedelta(days=9)]),
    "nothing": (pa.null(), [None]),
    "list": (pa.list_(pa.uint8()), [[], [1, None], [255]]),
    "map": (pa.map_(pa.utf8(), pa.int32()), [[], [("a", 1)]]),
    "data": (
        pa.struct([("x", pa.uint16()), ("deep", pa.struct([("y", pa.utf8())]))]),
        [{"x": 65_535, "deep": {"y": "a"}}, {"x": None, "deep": None}, {"x": 1, "deep": {}}],
    ),
}

CONSTANTS: Final = (
    *("0", "1", "-1", "1.5", "0.1", "255", "2147483648", "9223372036854775807"),
    *("''", "'a'", "'Ab'", "x'00ff'", "TRUE"),
    *(f"TIMESTAMP '{each.isoformat()}'" for each in INSTANTS),
)
ATTRIBUTES: Final = (*KINDS, "data.x", "data.deep.y", "nowhere", "i96")
NAMES: Final = ("a.parquet", "b.PARQUET", "c.parq", "part-00000", "d.parquet.gz", "k=1", "data")
# The checksums are of no file here: Spark itself refuses a file beside wrong checksums of its own.
HIDDEN: Final = ("_SUCCESS", ".e.parquet.crc", "_old.parquet")


def drawn_table(rng: random.Random) -> pa.Table:
    chosen = rng.sample(sorted(KINDS), rng.randint(3, 10))
    columns: dict[str, Any] = {"id": pa.array(range(ROWS), pa.int64())}
    for name in chosen:
        given, values = KINDS[name]
        drawn = [rng.choice([*values, None]) for _ in range(ROWS)]
        columns[name] = pa.array(drawn, given)
    return pa.table(columns)


def drawn_filters(rng: random.Random, names: list[str], count: int = 25) -> list[dict[str, Any]]:
    def test() -> str:
        name = rng.choice([*names, *ATTRIBUTES[-4:]])
        if rng.random() < 0.2:
            return f"{name} IS {rng.choice(['', 'NOT '])}NULL"
        return f"{name} {rng.choice(['<', '<=', '=', '!=', '>', '>='])} {rng.choice(CONSTANTS)}"

    def text() -> str:
        return rng.choice(["{}", "{} OR {}", "{} AND {}", "NOT {}"]).format(test(), test())

    return [{"id": number, "filter": text()} for number in range(count)]


def written(rng: random.Random, spark: SparkSession | None, home: Path) -> list[str]:
    """Events in a directory, by Arrow or by Spark; the attributes they may have."""
    table = drawn_table(rng)
    names = [name for name in table.column_names if name not in ("data", "list", "map")]
    home.mkdir()
    if spark is None:
        pieces = [table.slice(0, ROWS // 2), table.slice(ROWS // 2)]
        for name, piece in zip(rng.sample(NAMES, 2), pieces, strict=True):
            pq.write_table(piece, home / name, row_group_size=rng.choice([7, ROWS]))
        if rng.random() < 0.5:
            (home / rng.choice(HIDDEN)).write_bytes(b"no Parquet")
        return names
    kind = rng.choice(["INT96", "TIMESTAMP_MICROS", "TIMESTAMP_MILLIS"])
    spark.conf.set("spark.sql.parquet.outputTimestampType", kind)
    instants: list[Any] = [(each, rng.choice([*INSTANTS, None])) for each in range(ROWS)]
    frame = spark.createDataFrame(instants, "id long, i96 timestamp").selectExpr(
        *("id", "i96", "struct(i96 AS x, id AS y) AS data", "array(i96) AS list"),
        "make_dt_interval(2) AS span",
    )
    frame.repartition(rng.choice([1, 3])).write.mode("overwrite").parquet(str(home))
    return ["id", "i96", "span"]


def answers(frame: Any) -> Counter[str]:
    return Counter(map(str, frame.collect()))


@pytest.fixture
def new_york(spark: SparkSession) -> Any:
    """A session that is not in UTC, with its ways of writing restored."""
    names = ("spark.sql.session.timeZone", "spark.sql.parquet.outputTimestampType")
    before = {name: spark.conf.get(name) for name in names}
    spark.conf.set(names[0], "America/New_York")
    yield spark
    for name, value in before.items():
        assert value is not None
        spark.conf.set(name, value)


def test_a_path_is_what_spark_reads_there(
    new_york: SparkSession, tmp_path: Path, rng: random.Random
) -> None:
    warnings.simplefilter("ignore")
    for number in range(FILES):
        home = tmp_path / f"events{number}"
        names = written(rng, new_york if number % 2 else None, home)
        frame = new_york.read.parquet(str(home))
        filters = drawn_filters(rng, names)
        by_path, by_frame = (match(each, filters) for each in (home, frame))
        assert by_path.schema.simpleString() == by_frame.schema.simpleString(), (number, filters)
        assert answers(by_path) == answers(by_frame), (number, filters)
        bad = [answers(rejects(each, ["id"]).drop("reason")) for each in (home, frame)]
        assert bad[0] == bad[1], number


def test_the_default_timestamps_of_spark(new_york: SparkSession, tmp_path: Path) -> None:
    home = str(tmp_path / "a")
    rows: list[Any] = list(enumerate(INSTANTS))
    new_york.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    new_york.createDataFrame(rows, "id long, at timestamp").write.parquet(home)
    filters = [{"id": 1, "filter": "at > TIMESTAMP '2026-06-01T00:00:00Z'"}]
    found = match(home, filters)
    assert sorted(row.id for row in found.collect()) == [4, 5]
    assert found.schema["at"].dataType.simpleString() == "timestamp"
    assert found.join(new_york.read.parquet(home), "at").count() == 2
    assert rejects(home).count() == 0


def test_only_what_the_log_of_a_stream_names_is_its_output(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, home = tmp_path / "source", tmp_path / "out put"
    source.mkdir()
    pq.write_table(pa.table({"x": [1, 2]}), source / "a.parquet")
    stream = spark.readStream.schema("x long").parquet(str(source))
    writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "c"))
    for _ in range(2):
        query = writer.trigger(availableNow=True).start(str(home))
        query.awaitTermination()
        pq.write_table(pa.table({"x": [3]}), source / "b.parquet")
    pq.write_table(pa.table({"x": [1, 2, 9]}), home / "part-00000-of-a-killed-task.parquet")
    found = match(home, [{"id": 1, "filter": "x > 0"}])
    assert sorted(row.x for row in found.collect()) == [1, 2, 3]


@pytest.mark.usefixtures("spark")
def test_what_spark_does_not_read_is_given_back_as_far_as_it_can_be(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    columns: dict[str, Any] = {
        "half": pa.array([np.float16(1.5), None], pa.float16()),
        "at": pa.array([1_000, 2_000], pa.timestamp("ns")),
        "fine": pa.array([1_000, 2_001], pa.timestamp("ns")),
        "clock": pa.array([1, 2], pa.time64("us")),
    }
    pq.write_table(pa.table(columns), path)
    filters = [{"id": 1, "filter": "half = 1.5 OR half IS NULL"}]
    found = match(path, filters, columns=["half", "at"])
    assert found.schema.simpleString() == (
        "struct<half:float,at:timestamp_ntz,subscription:bigint>"
    )
    assert [row.half for row in found.collect()] == [1.5, None]
    with pytest.raises(InvalidInput, match=r"'clock' is time64.us., .* columns=\[...\]"):
        match(path, filters)
    with pytest.raises(Exception, match=r"column 'fine' is timestamp.ns., .* columns=\[...\]"):
        match(path, filters, columns=["fine"]).collect()


def test_a_column_that_does_not_cross_is_named(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 1 AS id, INTERVAL '2' MONTH AS term")
    filters = [{"id": 1, "filter": "id = 1"}]
    with pytest.raises(InvalidInput, match=r"'term' is interval month, .* columns=\[...\]"):
        match(frame, filters)
    assert match(frame, filters, columns=["id"]).count() == 1
