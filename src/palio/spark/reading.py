"""The sources of subscriptions: DataFrames, Parquet, JSON lines, Arrow tables, dictionaries.

All become a `SubscriptionTable`: one row a subscription, or a period of one, in a fixed schema. A
row that is no subscription (no id, no filter, parameters that are no object) does not spoil the
others: it goes to the rejects, and so does, later, every filter that does not compile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from palio.client.answers import CatalogueEntry
from palio.errors import InvalidInput, LimitExceeded
from palio.parquet import named_errors, opened, pieces
from palio.protocol.addresses import parse_address
from palio.spark.connection import TIMEOUT_S, BrokerLogin
from palio.spark.options import default_token
from palio.spark.parquet import parquet_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Source: TypeAlias = "DataFrame | pa.Table | str | Path | Catalogue | Iterable[Mapping[str, Any]]"
"""Subscriptions as the user has them."""

ADDRESSES: Final = ("palio://", "palios://")
"""The beginnings of a text that names a broker, and no file."""

COLUMNS: Final = ("id", "subscriber", "filter", "parameters", "valid_from", "valid_to")
"""The columns of a row; only `id` and `filter` are required."""

MAX_FILE_BYTES: Final = 1 << 30
"""A file of subscriptions is read as a whole: some millions of them, or those of several files."""

JSON_LINES: Final = frozenset({".jsonl", ".ndjson", ".json"})

_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")


class SubscriptionTable:
    """Subscriptions in columns, and the rows that are none.

    `table` has the columns `id` (int64 or utf8), `filter` (utf8),
    and where the source has them `subscriber`, `parameters` (a msgpack map), `valid_from`
    and `valid_to` (timestamps).
    """

    def __init__(self, table: pa.Table, rejects: list[tuple[Any, Any, str]]) -> None:
        self.table = table
        self.rejects = rejects
        """(id, filter, reason) of each row that is no subscription."""

    def __len__(self) -> int:
        return self.table.num_rows

    @property
    def has_history(self) -> bool:
        """True if any subscription holds for a time only."""
        return any(
            name in self.table.column_names and self.table[name].null_count < len(self)
            for name in ("valid_from", "valid_to")
        )


def read(source: Source) -> SubscriptionTable:
    """The subscriptions of a source.

    >>> subscriptions = read([{"id": 1, "filter": "price < 5"}, {"id": 2, "filter": None}])
    >>> subscriptions.table["id"].to_pylist(), subscriptions.rejects
    ([1], [(2, None, 'there is no filter')])
    """
    if isinstance(source, str) and source.startswith(ADDRESSES):
        source = Catalogue(source)
    if isinstance(source, Catalogue):
        return _from_catalogue(source)
    if isinstance(source, str | Path):
        return _from_file(Path(source))
    if isinstance(source, pa.Table):
        return _from_table(source)
    if hasattr(source, "toArrow"):  # a DataFrame, of whichever of Spark's two classes
        frame: Any = source
        _check_columns(frame.columns)
        wanted = [name for name in COLUMNS if name in frame.columns]
        return _from_table(frame.select(*wanted).toArrow())
    if hasattr(source, "__arrow_c_stream__"):  # a frame of pandas or Polars
        return _from_table(pa.table(source))
    rows = [*source] if isinstance(source, Iterable) else [source]
    for row in rows:
        if not isinstance(row, Mapping):
            raise InvalidInput(
                "subscriptions are rows with an id and a filter, such as "
                f"{{'id': 1, 'filter': 'x > 5'}}; this one is {row!r:.80}"
            )
    return _from_rows(rows)


def _from_catalogue(catalogue: Catalogue) -> SubscriptionTable:
    """The same columns however many subscriptions there are: there may be none at first."""
    entries = catalogue.rows()
    return _table(
        {
            "id": pa.array([entry["id"] for entry in entries], pa.utf8()),
            "subscriber": pa.array([entry["subscriber"] for entry in entries], pa.utf8()),
            "filter": pa.array([entry["filter"] for entry in entries], pa.utf8()),
            "parameters": [entry["parameters"] for entry in entries],
        }
    )


def _from_file(path: Path) -> SubscriptionTable:
    if not path.exists():
        raise InvalidInput(f"cannot read subscriptions from {str(path)!r}: there is no such file")
    if path.suffix in JSON_LINES:
        return _from_lines(path.read_bytes().split(b"\n"))
    files = parquet_files(path, "subscriptions from", deep=True)
    try:
        tables = [
            _rows_of(file, folder) for file, folder in zip(files, _folders(files), strict=True)
        ]
    except LimitExceeded:
        raise
    except InvalidInput as error:
        raise InvalidInput(
            f"{error}; JSON lines are known by their suffix, {' or '.join(sorted(JSON_LINES))}"
        ) from None
    return _from_table(pa.concat_tables(tables, promote_options="permissive"))


def _rows_of(file: Path, folders: Mapping[str, Any]) -> pa.Table:
    """The subscriptions in a file, with the columns that are in the names of its directories."""
    with opened(file) as parquet:
        schema = parquet.schema_arrow
    names = [name for name in COLUMNS if name in schema.names]
    _check_columns({*schema.names, *folders})
    batches: list[pa.RecordBatch] = []
    size = 0
    for batch in pieces(file, columns=names):
        batches.append(batch)
        size += batch.nbytes
        if size > MAX_FILE_BYTES:
            raise LimitExceeded(
                f"the subscriptions in {str(file)!r}, unpacked,",
                limit="MAX_FILE_BYTES",
                maximum=MAX_FILE_BYTES,
                actual=size,
            )
    columns = [schema.field(name) for name in names]
    table = pa.Table.from_batches(batches, None if batches else pa.schema(columns))
    for name in folders.keys() & {*COLUMNS} - {*names}:
        table = table.append_column(name, pa.repeat(pa.scalar(folders[name]), table.num_rows))
    return table


def _folders(files: list[Path]) -> Iterator[dict[str, Any]]:
    """The columns that the names of each file's directories give: `subscriber=ann`."""
    if not any("=" in file.parent.as_posix() for file in files):
        yield from ({} for _ in files)
        return
    import pyarrow.dataset as ds  # which workers would load pandas for

    with named_errors(files[0]):
        dataset = ds.dataset([*map(str, files)], format="parquet", partitioning="hive")
    for fragment in dataset.get_fragments():
        yield ds.get_partition_keys(fragment.partition_expression)


def _from_lines(lines: Iterable[bytes]) -> SubscriptionTable:
    decode = msgspec.json.Decoder().decode
    rows: list[Any] = []
    bad: list[tuple[Any, Any, str]] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = decode(line)
        except msgspec.DecodeError as error:
            bad.append((None, line.decode(errors="replace"), f"line {number} is no JSON: {error}"))
            continue
        if isinstance(row, dict):
            rows.append(row)
        else:
            text = line.decode(errors="replace")
            bad.append((None, text, f"line {number} is no JSON object"))
    subscriptions = _from_rows(rows)
    return SubscriptionTable(subscriptions.table, bad + subscriptions.rejects)


def _from_rows(rows: list[Mapping[str, Any]]) -> SubscriptionTable:
    names = {name for row in rows for name in row} if rows else {"id", "filter"}
    return _table({name: [row.get(name) for row in rows] for name in names})


def _from_table(table: pa.Table) -> SubscriptionTable:
    names = table.column_names
    return _table({name: table[name].combine_chunks() for name in names if name in COLUMNS})


def _table(given: Mapping[str, Any]) -> SubscriptionTable:
    """Columns, lists or arrays of any type, in the fixed schema: the rows that are subscriptions,
    and the others with their reasons.
    """
    _check_columns(given)
    bad: dict[int, str] = {}
    table = pa.table({name: _column(name, given[name], bad) for name in COLUMNS if name in given})
    for name, reason in (("filter", "there is no filter"), ("id", "there is no id")):
        for place in np.flatnonzero(table[name].is_null().to_numpy()).tolist():
            bad.setdefault(place, reason)
    for place in _inverted(table):
        bad.setdefault(place, "valid_from is after valid_to: it holds at no time")
    rejects = []
    for place, reason in sorted(bad.items()):
        row = table.slice(place, 1)
        rejects.append((row["id"][0].as_py(), row["filter"][0].as_py(), reason))
    if bad:
        keep = np.ones(table.num_rows, np.bool_)
        keep[list(bad)] = False
        table = table.filter(pa.array(keep))
    return SubscriptionTable(table.combine_chunks(), rejects)


def _check_columns(names: Iterable[str]) -> None:
    listed = sorted(names)
    for name in ("id", "filter"):
        if name not in listed:
            raise InvalidInput(
                f"subscriptions have no column {name!r}; they have {', '.join(listed) or 'none'}"
            )


def _inverted(table: pa.Table) -> list[int]:
    """The rows that end before they begin."""
    if not {"valid_from", "valid_to"} <= {*table.column_names}:
        return []
    begins, ends = (table[name].combine_chunks() for name in ("valid_from", "valid_to"))
    wrong: Any = pc.greater(begins, ends)
    return [int(place) for place in np.flatnonzero(wrong.fill_null(False).to_numpy(False))]


# --- columns ---


def _column(name: str, given: Any, bad: dict[int, str]) -> Any:
    """A column in the type of its name. Most arrays need a cast, and nobody to look at values."""
    kind = given.type if isinstance(given, pa.Array) else pa.null()
    types = pa.types
    is_text = types.is_string(kind) or types.is_large_string(kind)
    try:
        match name:
            case "id" | "subscriber":
                if types.is_integer(kind) or is_text:
                    return given.cast(pa.utf8() if is_text else pa.int64())
                return _names(name, _values(given))
            case "filter":
                if is_text or not isinstance(given, pa.Array):
                    return given.cast(pa.utf8()) if is_text else _texts(given, bad)
                raise InvalidInput(f"column 'filter' holds {kind}; it takes the text of filters")
            case "parameters":
                return pa.array(_objects(_values(given), bad), pa.binary())
            case _:
                if types.is_timestamp(kind) or types.is_date(kind):
                    return given.cast(pa.timestamp("us")).cast(_TIMESTAMP)
                return _instants(name, _values(given), bad)
    except (pa.ArrowInvalid, OverflowError) as error:
        raise InvalidInput(f"column {name!r}: {error}") from None


def _names(name: str, values: list[Any]) -> Any:
    """Ids or subscribers: all integers or all strings."""
    kinds = {type(value) for value in values if value is not None}
    if not kinds <= {int} and not kinds <= {str}:
        listed = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise InvalidInput(f"column {name!r} holds {listed}; give integers or strings, not both")
    return pa.array(values, pa.utf8() if str in kinds else pa.int64())


def _texts(values: list[Any], bad: dict[int, str]) -> Any:
    for place, value in enumerate(values):
        if value is not None and not isinstance(value, str):
            bad[place] = f"the filter is no text but {type(value).__name__}"
    return pa.array([value if isinstance(value, str) else None for value in values], pa.utf8())


def _values(given: Any) -> list[Any]:
    """A column as Python has it: the fields of a struct that are null have no value."""
    if not isinstance(given, pa.Array):
        return list(given)
    rows: list[Any] = given.to_pylist()
    if pa.types.is_map(given.type):
        return [None if row is None else dict(row) for row in rows]
    if pa.types.is_struct(given.type):
        return [
            None
            if row is None
            else {name: value for name, value in row.items() if value is not None}
            for row in rows
        ]
    return rows


def _objects(values: list[Any], bad: dict[int, str]) -> list[bytes | None]:
    """Parameters as msgpack, which keeps instants and bytes apart from strings."""
    encode = msgspec.msgpack.Encoder(decimal_format="number").encode
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    payloads: list[bytes | None] = []
    for place, value in enumerate(values):
        packed = None
        try:
            given = decode(value) if isinstance(value, str | bytes) else value
            if isinstance(given, Mapping):
                packed = encode(dict(given)) if given else None
            elif given is not None:
                bad[place] = f"parameters are no object but {type(given).__name__}"
        except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as error:
            bad[place] = f"parameters are no JSON object: {error}"
        payloads.append(packed)
    return payloads


def _instants(name: str, values: list[Any], bad: dict[int, str]) -> Any:
    times: list[datetime | None] = []
    for place, value in enumerate(values):
        try:
            times.append(_instant(value))
        except (ValueError, OverflowError) as error:
            bad[place] = f"{name} is no time: {error}"
            times.append(None)
    return pa.array(times, _TIMESTAMP)


def _instant(value: Any) -> datetime | None:
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if value is None or isinstance(value, datetime):
        return value if value is None or value.tzinfo else value.replace(tzinfo=UTC)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    raise ValueError(f"{value!r:.80} is of type {type(value).__name__}")


# --- subscriptions at a broker ---


ASKER: Final = "spark"


@dataclass(frozen=True)
class Catalogue:
    """The subscriptions at a broker, now.

    A broker shows its subscriptions to principals with the grant `monitor`
    (docs/howto/authority.md), each filter as it runs it: with what its owner may receive. The
    asker's own are left out, such as the durable subscription that a pipeline reads its events
    from.

    `token` is what shows who asks, by default `$PALIO_TOKEN`; `name` is who asks where nobody needs
    to show it; `ca` is the file of the authorities to trust, by default those of the system.

    >>> Catalogue("palio://localhost").url
    'palio://localhost:7400'
    """

    url: str
    token: str = field(default="", repr=False)
    name: str = ASKER
    ca: str = ""
    timeout_s: float = TIMEOUT_S

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", str(parse_address(self.url)))

    def rows(self) -> list[CatalogueEntry]:
        """Each subscription: `id`, `subscriber`, `filter`, `parameters`."""
        from palio.client.blocking import SyncClient

        token = self.token or default_token()
        tls = BrokerLogin(self.url, ca=self.ca).tls
        with SyncClient(
            self.url, name=self.name, token=token, tls=tls, timeout=self.timeout_s
        ) as client:
            own = client.publisher.rpartition("/")[0]
            return [entry for entry in client.admin.subscriptions() if entry["subscriber"] != own]
