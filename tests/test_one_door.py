"""Bytes from outside become record batches in one place, `palio.model.untrusted`, and nowhere else.

Arrow follows lengths and offsets out of its memory until a batch has been validated in full: to
ask such a batch for its `nbytes` may end the process. So both the readers of Arrow's own form and
`nbytes` are banned, but for the modules listed here, each with its reason.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1] / "src" / "palio"

READERS: Final = frozenset(
    {"open_stream", "open_file", "read_message", "read_record_batch", "read_schema", "read_tensor"}
    | {"RecordBatchStreamReader", "RecordBatchFileReader", "MessageReader", "deserialize"}
    | {"read_feather", "read_table", "feather"}
)
"""What makes something of bytes in Arrow's form, whatever it is read from."""

MAY_READ: Final[Mapping[str, str]] = {
    "model/untrusted.py": "the door",
    "model/parcels.py": "rows that this process has written, in their smaller form",
    "spark/sink.py": "what a task of the same job wrote, unpickled with the rest of its report",
    "spark/streaming.py": "what the driver of the same job wrote, unpickled with its partition",
}

MAY_ASK: Final[Mapping[str, str]] = {
    "matching/": "arrays of NumPy, and tables that came through the door",
    "model/parcels.py": "batches that were published here, or came through the door",
    "node/parcel_cache.py": "a parcel",
    "protocol/publications.py": "bytes of a parcel, noted when it was sent",
    "protocol/pieces.py": "bytes of a message, counted as its pieces come",
    "protocol/batches.py": "a batch that is published here",
    "client/outbox.py": "a batch that is published here",
    "client/history.py": "a piece of Parquet that `palio.parquet` has validated",
    "cli/archive.py": "parcels",
    "parquet.py": "a piece of Parquet, validated",
    "spark/reading.py": "a piece of Parquet that `palio.parquet` has validated",
    "spark/workers.py": "a batch of the same job",
}
"""Who may ask for the bytes of something that is called neither `parcel` nor `self`."""


def is_allowed(module: str, those: Mapping[str, str]) -> bool:
    return any(module == each or (each[-1] == "/" and module.startswith(each)) for each in those)


def violations(source: str, module: str) -> list[str]:
    """Where a module reads Arrow by itself, or asks for bytes."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.expr | ast.stmt):
            continue
        names: list[str] = []
        match node:
            case ast.Attribute(value=ast.Name(id="pq")):  # Parquet has `palio.parquet`
                continue
            case ast.Attribute(attr=name):
                names = [name]
            case ast.ImportFrom(module=home, names=aliases) if (home or "").startswith("pyarrow"):
                names = [alias.name for alias in aliases]
            case ast.Constant(value=str(name)) if name in READERS:  # as for `getattr`
                names = [name]
        if not READERS.isdisjoint(names) and not is_allowed(module, MAY_READ):
            found.append(f"{module}:{node.lineno}: {', '.join(names)}")
        if names == ["nbytes"] and isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value).rpartition(".")[2]
            if owner not in ("parcel", "self") and not is_allowed(module, MAY_ASK):
                found.append(f"{module}:{node.lineno}: {ast.unparse(node)}")
    return found


SOURCES: Final = sorted(ROOT.rglob("*.py"))


def test_arrow_is_read_in_one_place_and_asked_for_bytes_where_it_is_safe() -> None:
    found = [
        violation
        for path in SOURCES
        for violation in violations(path.read_text("utf-8"), str(path.relative_to(ROOT)))
    ]
    assert not found, "read it by `palio.model.untrusted`:\n" + "\n".join(found)


@pytest.mark.parametrize("listed", [MAY_READ, MAY_ASK], ids=["read", "ask"])
def test_nobody_is_listed_who_does_neither(listed: Mapping[str, str]) -> None:
    for place in listed:
        texts = [(path, path.read_text("utf-8")) for path in SOURCES]
        here = [
            text for path, text in texts if is_allowed(str(path.relative_to(ROOT)), {place: ""})
        ]
        assert any("nbytes" in text or any(each in text for each in READERS) for text in here), (
            place
        )


# --- the checker itself ---

CAUGHT: Final = (
    "import pyarrow as pa\npa.ipc.open_stream(x)",
    "import pyarrow as pa\nwith pa.ipc.open_file(x) as f: pass",
    "from pyarrow.ipc import read_record_batch",
    "from pyarrow import feather",
    "import pyarrow.ipc as i\ni.RecordBatchStreamReader(x)",
    "pa.ipc.read_schema(x)",
    "getattr(pa.ipc, 'read_message')(x)",
    "def f(batch): return batch.nbytes",
    "def f(x): return sum(each.nbytes for each in x.columns)",
)

FREE: Final = (
    "pa.ipc.new_stream(sink, schema)",
    "pq.read_table(path)",
    "def f(message): return message.parcel.nbytes",
    "class A:\n    def f(self): return self.nbytes",
    "nbytes = 5",
)


@pytest.mark.parametrize("source", CAUGHT)
def test_a_second_door_is_caught(source: str) -> None:
    assert len(violations(source, "server/x.py")) == 1


@pytest.mark.parametrize("source", FREE)
def test_what_is_no_door_is_free(source: str) -> None:
    assert not violations(source, "server/x.py")
