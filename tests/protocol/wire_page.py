"""The tables of docs/reference/wire.md, drawn from the code; run it to write them anew.

python -m tests.protocol.wire_page
"""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import msgspec

from palio.model import patterns
from palio.model.parcels import Parcel
from palio.protocol import limits, messages, wire
from palio.protocol.transitions import RULES, Speaker

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "wire.md"

_BLOCK: Final = re.compile(r"(<!-- begin: ([\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)

_ENDS: Final = {"client": {Speaker.CALLER, Speaker.CLIENT}, "broker": {Speaker.BROKER}}
"""The ends of a client's connection, each with what it is in the rules."""

_LIMITS: Final = (
    "PROTOCOL_VERSION",
    "MAX_FRAME_BYTES",
    "MAX_GREETING_BYTES",
    "MAX_REQUEST_BYTES",
    "MAX_BATCH_BYTES",
    "MAX_BATCH_ROWS",
    "MAX_BATCH_CELLS",
    "MAX_SHAPES",
    "MAX_NUMBER",
    "MAX_NAME_BYTES",
    "MAX_BOOKMARK_BYTES",
    "MOST_TOGETHER",
    "TOGETHER_CHARS",
    "UPDATES_UNDER_WAY",
    "WINDOW_BYTES",
    "ACK_EVERY_BYTES",
    "ACK_DELAY_S",
    "GREETING_S",
    "DIAL_S",
    "HEARTBEAT_S",
    "SILENT_BEATS",
    "DAMAGE_TRIES",
    "BACKOFF_MIN_S",
    "BACKOFF_MAX_S",
)
"""Those of `palio.protocol.limits` that an end of a client's connection meets."""


def client_messages() -> list[type]:
    """The messages that a client sends or receives, in the order of the rules."""
    speakers = set().union(*_ENDS.values())
    return [kind for rule in RULES if speakers & set(rule.speakers) for kind in rule.messages]


def messages_table() -> str:
    """One row a message: its direction and whether it is sequenced."""
    lines = ["| message | from | sequenced | purpose |", "|---|---|---|---|"]
    for rule in RULES:
        ends = [name for name, speakers in _ENDS.items() if speakers & set(rule.speakers)]
        for kind in rule.messages if ends else ():
            sequenced = "no" if kind in messages.UNCOUNTED else "yes"
            purpose = _cell(inspect.getdoc(kind) or "").partition(". ")[0].rstrip(".:")
            lines.append(f"| `{kind.__name__}` | {', '.join(ends)} | {sequenced} | {purpose} |")
    return "\n".join(lines)


def fields_table() -> str:
    """The fields of each message that has some, and of the structures within."""
    inner = [messages.Failure, messages.Gap, patterns.Occurrence]
    lines = ["| of | field | type | absent | |", "|---|---|---|---|---|"]
    for kind in (*client_messages(), *inner):
        notes = _notes(inspect.getmodule(kind), kind.__name__)
        name = f"`{kind.__name__}`"
        for field in fields(kind):
            absent = "required" if field.required else _default(field)
            cells = f"`{field.encode_name}`", type_name(field.type), absent
            lines.append(f"| {name} | {' | '.join(cells)} | {_cell(notes.get(field.name, ''))} |")
            name = ""
    return "\n".join(lines)


def fields(kind: type) -> tuple[Any, ...]:
    """The fields of a structure as msgspec encodes them."""
    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.StructType)
    return info.fields


def _default(field: Any) -> str:
    value = field.default
    if isinstance(value, bytes):
        return "no bytes"
    if value is msgspec.NODEFAULT or isinstance(value, Mapping):  # a factory of mappings, or one
        return "`{}`"
    return f"`{json.dumps(value)}`".replace("null", "nil")


def type_name(info: Any) -> str:
    """A type in the words of the page.

    >>> type_name(msgspec.inspect.type_info(int | None))
    'int or nil'
    """
    of_kind = {
        "AnyType": "any",
        "BoolType": "bool",
        "FloatType": "float",
        "BytesType": "bin",
        "NoneType": "nil",
        "DateTimeType": "timestamp",
    }
    match type(info).__name__:
        case "IntType":
            return "number" if info.le == limits.MAX_NUMBER else "int"
        case "StrType":
            return f"str of at most {info.max_length}" if info.max_length else "str"
        case "UnionType":
            return " or ".join(type_name(each) for each in info.types)
        case "LiteralType":
            return ", ".join(f'`"{value}"`' for value in info.values)
        case "VarTupleType":
            sizes = f" of at most {info.max_length}" if info.max_length else ""
            return f"array{sizes} of {type_name(info.item_type)}"
        case "DictType":
            return f"map of str to {type_name(info.value_type)}"
        case "StructType":
            return f"`{info.cls.__name__}`"
        case "CustomType" if info.cls is Parcel:
            return "events"
        case kind:
            return of_kind[kind]


def limits_table() -> str:
    """The limits that a client meets, with their reasons."""
    notes = _notes(limits, None)
    lines = ["| limit | value | |", "|---|---|---|"]
    for name in _LIMITS:
        value = getattr(limits, name)
        text = f"2^{value.bit_length() - 1}" if value == limits.MAX_NUMBER else f"{value:,}"
        lines.append(f"| `{name}` | {text} | {_cell(notes.get(name, ''))} |")
    return "\n".join(lines)


def _notes(module: ModuleType | None, owner: str | None) -> dict[str, str]:
    """The texts below the fields of a class, or the constants of a module."""
    assert module is not None
    body = ast.parse(inspect.getsource(module)).body
    if owner is not None:
        classes = {each.name: each for each in body if isinstance(each, ast.ClassDef)}
        body = classes[owner].body
    return dict(_annotated(body))


def _annotated(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for statement, after in pairwise(body):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
        ):
            yield statement.target.id, str(after.value.value)


def _cell(text: str) -> str:
    paragraph = " ".join(text.partition("\n\n")[0].split())
    return paragraph.replace("|", "\\|")


def frames_table() -> str:
    """The kinds of frames, as the codec numbers them."""
    kinds = {"schema": wire.SHAPE, "control": wire.CONTROL, "events": wire.EVENTS}
    bodies = (
        "u32 number of the schema, then [its description](#events-and-schemas)",
        "one message in msgpack",
        "u32 length of a message in msgpack, the message, then an Arrow IPC record batch message",
    )
    lines = ["| kind | name | body |", "|---|---|---|"]
    for (name, kind), body in zip(kinds.items(), bodies, strict=True):
        lines.append(f"| {kind} | {name} | {body} |")
    return "\n".join(lines)


TABLES: Final = {
    "frames": frames_table,
    "messages": messages_table,
    "fields": fields_table,
    "limits": limits_table,
}


def drawn(page: str) -> str:
    """The page with its tables as the code has them."""
    return _BLOCK.sub(lambda found: f"{found[1]}\n{TABLES[found[2]]()}\n\n{found[3]}", page)


def main() -> None:
    """Write the tables of the page."""
    PAGE.write_text(drawn(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
