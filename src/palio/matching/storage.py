"""Compiled layers and their subscriptions as flat files, for many processes to map into memory.

A saved index is a directory: every array as a `.npy` file, tables and texts as Arrow files, and
`index.msgpack` with what is small and the checksums of the others (`manifest.py`). Loading reads
the files once, to check them, and maps them: memory is shared with every other process that does.
Kernels expect arrays that may be written to, so files are mapped copy-on-write; nothing ever
writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from palio import files
from palio.errors import InvalidInput
from palio.language.parsing import parse_filter
from palio.matching import checking
from palio.matching.checking import Problem
from palio.matching.compile.cuts import Universe
from palio.matching.compile.rows import CompiledRows
from palio.matching.compile.terms import Guard, bound_residuals
from palio.matching.compiled import CompiledLayer
from palio.matching.destinations import Destinations
from palio.matching.guarded import GuardedLayer
from palio.matching.manifest import Loading, Saving, Written, filters_batch, filters_of, one_batch
from palio.matching.segment import LAYOUT, Segment
from palio.matching.subscriptions import Archive, Column, Subscriptions, Table
from palio.model.constraints import Constraint, Residual
from palio.model.operators import Op
from palio.model.texts import TextTest

FORMAT: Final = 1
"""Raised when an index of the format before would be misread."""

MANIFEST: Final = "index.msgpack"
TEXTS: Final = "texts.arrow"

_COMPILED: Final = (
    *("predicate_slots", "span_offsets", "lows", "highs"),
    *("row_offsets", "row_predicates", "row_owners"),
)

_DTYPES: Final[dict[str, Any]] = {
    "row_owners": np.int64,
    "keys": np.int64,
    "destinations": np.int64,
    "dead": np.uint64,
    "program": np.uint32,
    "lower_entries": np.int64,
    "upper_entries": np.int64,
    "lower_vectors": np.uint64,
    "upper_vectors": np.uint64,
    "cuts_number_ints": np.int64,
    "cuts_number_floats": np.int64,
    "cuts_times": np.int64,
    "cuts_text_heads": np.uint64,
    "cuts_text_starts": np.int64,
    "cuts_text_data": np.uint8,
}
"""The types of arrays; the others are of int32."""

_COLUMNS: Final = {
    "lower_entries": 5,
    "upper_entries": 5,
    "lower_vectors": 8,
    "upper_vectors": 8,
}
"""The columns of arrays with two dimensions."""


_OPERANDS: Final[dict[Op, Any]] = {
    **dict.fromkeys((Op.SUFFIX, Op.CONTAINS), (str, bytes)),
    **dict.fromkeys((Op.EQ, Op.LT, Op.LE, Op.GT, Op.GE, Op.PREFIX, Op.LIKE, Op.CIDR), str),
    Op.IN: list,
}
"""What text tests have as operators, each with what its operand may be."""


class _Test(msgspec.Struct, frozen=True):
    """A text test of an attribute; its operand is a string, bytes, or a list of strings."""

    name: str
    op: Op
    operand: Any
    ignore_case: bool
    negated: bool

    @classmethod
    def of(cls, name: str, test: TextTest) -> _Test:
        return cls(name, test.op, test.operand, test.ignore_case, test.negated)

    def test(self) -> TextTest:
        operand = tuple(self.operand) if isinstance(self.operand, list) else self.operand
        return TextTest(self.op, operand, self.ignore_case, self.negated)


class _LayerMeta(msgspec.Struct, frozen=True):
    names: tuple[str, ...]
    tests: tuple[_Test, ...]
    guards: tuple[tuple[int, int, int], ...] | None
    """For each its filter's key, the place of its conjunction, and the destination."""
    laid_out: bool
    depth: int


class _TableMeta(msgspec.Struct, frozen=True):
    skeleton: str
    variables: tuple[str, ...]
    own_destinations: bool


class _Meta(msgspec.Struct, frozen=True):
    parts: tuple[_LayerMeta, ...]
    tables: tuple[_TableMeta, ...]


def save(path: str | Path, layers: Sequence[CompiledLayer], subscriptions: Subscriptions) -> None:
    """Write everything to a directory, which is made if need be."""
    saving = Saving(files.make_directory(Path(path)))
    layer_metas = tuple(_save_layer(saving, at, layer) for at, layer in enumerate(layers))
    tables = [table for table in subscriptions.tables if isinstance(table, Table)]
    table_metas = tuple(_save_table(saving, at, table) for at, table in enumerate(tables))
    saving.arrow(TEXTS, filters_batch(_texts(subscriptions)))
    saving.finish(MANIFEST, FORMAT, _Meta(layer_metas, table_metas))


def load(path: str | Path, mmap: bool) -> tuple[Subscriptions, tuple[CompiledLayer, ...]]:
    """The subscriptions of a saved index, whose texts are parsed when they are asked for, and its
    layers. `FileDamaged` names a file that is not what was written, or that would harm a reader.
    """
    loading = Loading(Path(path), MANIFEST, "saved index", FORMAT, _Meta)
    subscriptions = Subscriptions()
    for at, table in enumerate(loading.meta.tables):
        subscriptions.tables.append(_load_table(loading, at, table))
    archive = Archive(filters_of(loading.arrow(TEXTS), loading.home / TEXTS))
    loading.must(TEXTS, checking.order(archive.keys))
    if len(archive.keys):
        subscriptions.tables.append(archive)
    metas = enumerate(loading.meta.parts)
    return subscriptions, tuple(
        _load_layer(loading, at, meta, subscriptions, mmap) for at, meta in metas
    )


# --- layers ---


def _save_layer(saving: Saving, at: int, layer: CompiledLayer) -> _LayerMeta:
    segment, compiled = layer.segment, layer.segment.compiled
    arrays = {name: getattr(compiled, name) for name in _COMPILED}
    arrays |= {f"cuts_{name}": getattr(compiled.universe, name) for name in Universe.STORED}
    arrays |= {"destinations": layer.destinations.by_rank, "dead": layer.tombstones}
    laid_out = segment.kernels is not None
    if laid_out:
        arrays |= segment.laid_out()
    for name, array in arrays.items():
        saving.array(f"part{at}_{name}.npy", array)
    universe = compiled.universe
    guards = None
    if isinstance(layer, GuardedLayer):
        guards = tuple((guard.key, guard.place, guard.destination) for guard in layer.guards)
    tests = tuple(_Test.of(name, test) for name, test in universe.tests)
    depth = segment.depth if laid_out else 0
    return _LayerMeta(universe.names, tests, guards, laid_out, depth)


def _load_layer(
    loading: Loading[_Meta], at: int, meta: _LayerMeta, subscriptions: Subscriptions, mmap: bool
) -> CompiledLayer:
    def array(name: str) -> npt.NDArray[Any]:
        return loading.array(
            f"part{at}_{name}.npy",
            _DTYPES.get(name, np.int32),
            columns=_COLUMNS.get(name),
            mapped=mmap,
        )

    def check(problems: Iterable[Problem], prefix: str = "") -> None:
        for problem in problems:
            raise loading.damaged(f"part{at}_{prefix}{problem.array}.npy", problem.what)

    stored = {name: array(f"cuts_{name}") for name in Universe.STORED}
    check(checking.cut_problems(stored, len(meta.names)), "cuts_")
    universe = Universe.loaded(meta.names, _tests(loading, meta), stored)
    compiled = CompiledRows(universe, *(array(name) for name in _COMPILED))
    check(checking.compiled_problems(compiled))
    layout = {name: array(name) for name in LAYOUT} if meta.laid_out else None
    if layout is not None:
        check(checking.layout_problems(compiled, layout, meta.depth))
    segment = Segment.loaded(compiled, layout, meta.depth)
    tombstones, destinations = array("dead"), array("destinations")
    count = len(segment.keys)
    loading.must(f"part{at}_dead.npy", checking.length(tombstones, count // 64 + 1))
    loading.must(f"part{at}_destinations.npy", checking.length(destinations, count))
    removed = int(np.unpackbits(tombstones.view(np.uint8)).sum()) if tombstones.any() else 0
    if meta.guards is not None:
        guards = _guards(loading, meta.guards, subscriptions)
        loading.must(f"part{at}_row_owners.npy", checking.bounds(segment.keys, 0, len(guards)))
        return GuardedLayer.loaded(segment, tombstones, removed, guards)
    by_rank = Destinations(segment.keys, destinations)
    return CompiledLayer(segment, tombstones, by_rank, removed)


def _tests(loading: Loading[_Meta], meta: _LayerMeta) -> list[tuple[str, TextTest]]:
    for wanted_test in meta.tests:
        _check_test(loading, wanted_test)
    tests = [(test.name, test.test()) for test in meta.tests]
    if len(set(meta.names)) < len(meta.names) or len(set(tests)) < len(tests):
        raise loading.damaged(MANIFEST, "an attribute or a test has two slots")
    return tests


def _check_test(loading: Loading[_Meta], test: _Test) -> None:
    """Refuse an operand that its operator cannot use."""
    wanted = _OPERANDS.get(test.op)
    members = test.operand if test.op is Op.IN else []
    is_usable = wanted is not None and isinstance(test.operand, wanted)
    if not is_usable or not all(isinstance(member, str) for member in members):
        raise loading.damaged(MANIFEST, f"{test.op.value} is no text test of {test.operand!r:.40}")
    if test.op in (Op.LIKE, Op.CIDR):
        try:
            Constraint.of(test.name, test.op, test.operand, test.ignore_case)
        except InvalidInput as error:
            raise loading.damaged(MANIFEST, f"of a text test, {error}") from None


def _guards(
    loading: Loading[_Meta],
    listed: Sequence[tuple[int, int, int]],
    subscriptions: Subscriptions,
) -> tuple[Guard, ...]:
    try:
        return tuple(
            Guard(key, _residuals(subscriptions, key, place), destination, place)
            for key, place, destination in listed
        )
    except (KeyError, IndexError):
        raise loading.damaged(MANIFEST, "it guards a filter that is not there") from None


def _residuals(subscriptions: Subscriptions, key: int, place: int) -> tuple[Residual, ...]:
    """The residuals of a guard, from the filter it came from."""
    subscription, table = subscriptions.located(key)
    filter = table.skeleton if isinstance(table, Table) else subscription.filter
    return bound_residuals(filter.conjunctions[place], subscription.values)


# --- subscriptions ---


def _save_table(saving: Saving, at: int, table: Table) -> _TableMeta:
    """A table; slots, whose names are numbers, get names that can be parsed."""
    saving.array(f"table{at}_keys.npy", table.keys)
    own = table.destinations is not table.keys
    if own:
        saving.array(f"table{at}_destinations.npy", table.destinations)
    saving.array(f"table{at}_gone.npy", np.array(sorted(table.gone), np.int64))
    for name, column in table.columns.items():
        batch = pa.record_batch({"values": column.values})
        saving.arrow(f"table{at}_{_spoken(name)}.arrow", batch)
        if column.rows is not None:
            saving.array(f"table{at}_{_spoken(name)}_rows.npy", column.rows)
    names = tuple(_spoken(name) for name in table.columns)
    return _TableMeta(_with_spoken_names(str(table.skeleton)), names, own)


def _spoken(name: str) -> str:
    return f"slot_{name}" if name.isdigit() else name


_QUOTED_OR_SLOT: Final = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|:(\d+)")


def _with_spoken_names(text: str) -> str:
    return _QUOTED_OR_SLOT.sub(
        lambda match: f":{_spoken(match[1])}" if match[1] else match[0], text
    )


def _load_table(loading: Loading[_Meta], at: int, meta: _TableMeta) -> Table:
    name = f"table{at}_keys.npy"
    keys = destinations = loading.array(name, np.int64)
    loading.must(name, checking.order(keys))
    if meta.own_destinations:
        name = f"table{at}_destinations.npy"
        destinations = loading.array(name, np.int64)
        loading.must(name, checking.length(destinations, len(keys)))
    try:
        skeleton = parse_filter(meta.skeleton)
    except InvalidInput as error:
        raise loading.damaged(MANIFEST, f"the filter of a table: {error}") from None
    if skeleton.variables != set(meta.variables):
        raise loading.damaged(MANIFEST, "a table has not the columns of its filter")
    columns = {
        variable: _load_column(loading, f"table{at}_{variable}", keys)
        for variable in meta.variables
    }
    gone = set(loading.array(f"table{at}_gone.npy", np.int64).tolist())
    return Table(keys, skeleton, columns, destinations, gone)


def _load_column(loading: Loading[_Meta], name: str, keys: npt.NDArray[np.int64]) -> Column:
    table = loading.arrow(f"{name}.arrow")
    if table.num_columns != 1 or table.column(0).null_count:
        raise loading.damaged(f"{name}.arrow", "it is not one column without nulls")
    values = one_batch(table).column(0)
    if not loading.has(f"{name}_rows.npy"):
        loading.must(f"{name}.arrow", checking.length(values, len(keys)))
        return Column(values, None)
    rows = loading.array(f"{name}_rows.npy", np.int32)
    wrong = checking.length(rows, len(values)) or checking.order(rows)
    loading.must(f"{name}_rows.npy", wrong or checking.bounds(rows, 0, len(keys)))
    return Column(values, rows)


def _texts(subscriptions: Subscriptions) -> Iterator[Written]:
    """Filters that were added one by one, or read from a file."""
    for key, subscription in subscriptions.single.items():
        yield Written.of(key, subscription.filter, subscription.values, subscription.destination)
    for table in subscriptions.tables:
        if isinstance(table, Archive):
            for row in table.batch.to_pylist():
                if row["key"] not in table.gone:
                    yield Written(**row)
