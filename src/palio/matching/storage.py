"""Compiled parts and their subscriptions as flat files, for many processes to map into memory.

A saved index is a directory: every array as a `.npy` file, tables and texts as Arrow files, and
`index.msgpack` with what is small. Loading maps the files: it takes no time and shares memory with
every other process that does. Kernels expect arrays that may be written to, so files are mapped
copy-on-write; nothing ever writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from palio.errors import InvalidInput
from palio.language.parsing import parse_filter
from palio.matching.archives import Written, read_arrow, write_arrow, write_filters
from palio.matching.assembling import Compiled
from palio.matching.cuts import Universe
from palio.matching.drafting import Guard, bound_residuals
from palio.matching.parts import Part
from palio.matching.segment import LAYOUT, Segment
from palio.matching.subscriptions import Archive, Column, Subscriptions, Table
from palio.model.constraints import Residual
from palio.model.operators import Op
from palio.model.texts import TextTest

__all__ = ["load_parts", "load_subscriptions", "save"]

FORMAT: Final = 1
"""Raised when files of an older version would be misread."""

_COMPILED: Final = (
    *("predicate_slots", "span_offsets", "lows", "highs"),
    *("row_offsets", "row_predicates", "row_owners"),
)


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


class _PartMeta(msgspec.Struct, frozen=True):
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
    format: int
    parts: tuple[_PartMeta, ...]
    tables: tuple[_TableMeta, ...]


def save(path: str | Path, parts: Sequence[Part], subscriptions: Subscriptions) -> None:
    """Write everything to a directory, which is made if need be."""
    home = Path(path)
    home.mkdir(parents=True, exist_ok=True)
    part_metas = tuple(_save_part(home, at, part) for at, part in enumerate(parts))
    tables = [each for each in subscriptions.tables if isinstance(each, Table)]
    table_metas = tuple(_save_table(home, at, table) for at, table in enumerate(tables))
    write_filters(home / "texts.arrow", _texts(subscriptions))
    meta = _Meta(FORMAT, part_metas, table_metas)
    (home / "index.msgpack").write_bytes(msgspec.msgpack.encode(meta))


def load_parts(path: str | Path, subscriptions: Subscriptions, mmap: bool) -> tuple[Part, ...]:
    """The parts of a saved index, whose subscriptions were loaded before."""
    home = Path(path)
    metas = enumerate(_meta(home).parts)
    return tuple(_load_part(home, at, meta, subscriptions, mmap) for at, meta in metas)


def load_subscriptions(path: str | Path) -> Subscriptions:
    """The subscriptions of a saved index; texts are parsed when they are asked for."""
    home = Path(path)
    loaded = Subscriptions()
    for at, meta in enumerate(_meta(home).tables):
        loaded.tables.append(_load_table(home, at, meta))
    archive = Archive(read_arrow(home / "texts.arrow"))
    if len(archive.keys):
        loaded.tables.append(archive)
    return loaded


def _meta(home: Path) -> _Meta:
    try:
        meta = msgspec.msgpack.decode((home / "index.msgpack").read_bytes(), type=_Meta)
    except (OSError, msgspec.DecodeError) as error:
        raise InvalidInput(f"{home} holds no saved index: {error}") from error
    if meta.format != FORMAT:
        raise InvalidInput(f"{home} has format {meta.format}, not {FORMAT}; save it again")
    return meta


# Parts ------------------------------------------------------------------------------------------


def _save_part(home: Path, at: int, part: Part) -> _PartMeta:
    segment, compiled = part.segment, part.segment.compiled
    arrays = {name: getattr(compiled, name) for name in _COMPILED}
    arrays |= {f"cuts_{name}": array for name, array in compiled.universe.stored().items()}
    arrays |= {"destinations": part.destinations, "dead": part.dead}
    laid_out = segment.kernels is not None
    if laid_out:
        arrays |= segment.laid_out()
    for name, array in arrays.items():
        np.save(home / f"part{at}_{name}.npy", array)
    universe = compiled.universe
    guards = None
    if part.guards is not None:
        guards = tuple((each.key, each.place, each.destination) for each in part.guards)
    tests = tuple(_Test.of(name, test) for name, test in universe.tests)
    depth = segment.depth if laid_out else 0
    return _PartMeta(universe.names, tests, guards, laid_out, depth)


def _load_part(
    home: Path, at: int, meta: _PartMeta, subscriptions: Subscriptions, mmap: bool
) -> Part:
    def array(name: str) -> npt.NDArray[Any]:
        loaded = np.load(home / f"part{at}_{name}.npy", mmap_mode="c" if mmap else None)
        return np.asarray(loaded)

    stored = {name: array(f"cuts_{name}") for name in Universe.STORED}
    tests = [(each.name, each.test()) for each in meta.tests]
    universe = Universe.loaded(meta.names, tests, stored)
    compiled = Compiled(universe, *(array(name) for name in _COMPILED))
    layout = {name: array(name) for name in LAYOUT} if meta.laid_out else None
    segment = Segment.loaded(compiled, layout, meta.depth)
    guards = None
    if meta.guards is not None:
        guards = tuple(
            Guard(key, _residuals(subscriptions, key, place), destination, place)
            for key, place, destination in meta.guards
        )
    dead = array("dead")
    died = int(np.unpackbits(dead.view(np.uint8)).sum()) if dead.any() else 0
    return Part(segment, dead, array("destinations"), guards, died)


def _residuals(subscriptions: Subscriptions, key: int, place: int) -> tuple[Residual, ...]:
    """What a guard demands, from the filter it came from."""
    filter_ = subscriptions[key].filter
    table = subscriptions.table_of(key)
    if isinstance(table, Table):
        filter_ = table.skeleton
    return bound_residuals(filter_.conjunctions[place], subscriptions[key].values)


# Subscriptions ----------------------------------------------------------------------------------


def _save_table(home: Path, at: int, table: Table) -> _TableMeta:
    """A table; slots, whose names are numbers, get names that can be parsed."""
    np.save(home / f"table{at}_keys.npy", table.keys)
    own = table.destinations is not table.keys
    if own:
        np.save(home / f"table{at}_destinations.npy", table.destinations)
    np.save(home / f"table{at}_gone.npy", np.array(sorted(table.gone), np.int64))
    for name, column in table.columns.items():
        batch = pa.record_batch({"values": column.values})
        write_arrow(home / f"table{at}_{_spoken(name)}.arrow", batch)
        if column.rows is not None:
            np.save(home / f"table{at}_{_spoken(name)}_rows.npy", column.rows)
    names = tuple(_spoken(name) for name in table.columns)
    return _TableMeta(_with_spoken_names(str(table.skeleton)), names, own)


def _spoken(name: str) -> str:
    return f"slot_{name}" if name.isdigit() else name


_QUOTED_OR_SLOT: Final = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|:(\d+)")


def _with_spoken_names(text: str) -> str:
    return _QUOTED_OR_SLOT.sub(
        lambda found: f":{_spoken(found[1])}" if found[1] else found[0], text
    )


def _load_table(home: Path, at: int, meta: _TableMeta) -> Table:
    keys = np.load(home / f"table{at}_keys.npy", mmap_mode="r")
    goals = keys
    if meta.own_destinations:
        goals = np.load(home / f"table{at}_destinations.npy", mmap_mode="r")
    columns = {}
    for name in meta.variables:
        rows = home / f"table{at}_{name}_rows.npy"
        columns[name] = Column(
            read_arrow(home / f"table{at}_{name}.arrow").column(0),
            np.load(rows, mmap_mode="r") if rows.exists() else None,
        )
    gone = set(np.load(home / f"table{at}_gone.npy").tolist())
    return Table(keys, parse_filter(meta.skeleton), columns, goals, gone)


def _texts(subscriptions: Subscriptions) -> Iterator[Written]:
    """Filters that were added one by one, or read from a file."""
    for key, each in subscriptions.single.items():
        yield Written.of(key, each.filter, each.values, each.destination)
    for table in subscriptions.tables:
        if isinstance(table, Archive):
            for place, key in enumerate(table.keys.tolist()):
                if key not in table.gone:
                    yield Written(**table.batch.slice(place, 1).to_pylist()[0])
