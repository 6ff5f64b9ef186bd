"""Recorded frames of a client's connection with their messages; run it to record them anew.

    python -m tests.protocol.vectors

Each file of tests/protocol/vectors is what one end says. A case begins a connection: `frames` are
bytes in hexadecimal, in order, and `messages` what they say. Values that JSON does not have are
objects with one key: `int64`, `timestamp`, `binary`.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa

from palio.model.events import to_batch
from palio.model.parcels import Parcel
from palio.model.patterns import Occurrence
from palio.protocol.limits import PROTOCOL_VERSION
from palio.protocol.messages import (
    Accepted,
    Acknowledge,
    AddPeer,
    Advertise,
    Answer,
    Apply,
    Assembled,
    Blocked,
    Bookmarked,
    Bye,
    Cancel,
    Deliver,
    Done,
    Drain,
    Ended,
    Failed,
    Failure,
    Gap,
    Gaps,
    Hello,
    Message,
    Nack,
    Ping,
    Pong,
    Publish,
    Query,
    Redirect,
    Refused,
    RemoveBroker,
    RemovePeer,
    Replace,
    Settle,
    StreamAck,
    Subscribe,
    SubscribeAll,
    Unadvertise,
    Unsubscribe,
    Update,
    Welcome,
    Withdraw,
    Withdrawn,
)
from palio.protocol.wire import Encoder

FOLDER: Final = Path(__file__).with_name("vectors")

TIME: Final = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)
TIME_US: Final = 1_767_323_045_678_000

QUOTE: Final = {"symbol": "IBM", "price": 9.0}
ALL_TYPES: Final[dict[str, Any]] = {
    "s": "Zürich €",
    "f": -0.5,
    "i": -(2**62),
    "b": True,
    "y": b"\x00\xff",
    "t": TIME,
}
LONG: Final = {"s": "x" * 3_000}
"""Its checksum goes the way of long inputs."""

_NAMES: Final[dict[pa.DataType, str]] = {
    pa.int64(): "int64",
    pa.float64(): "float64",
    pa.binary(): "binary",
    pa.utf8(): "utf8",
    pa.bool_(): "bool",
    pa.timestamp("us", tz="UTC"): "timestamp",
}


ARROW: Final = "batches"
PLAIN: Final = "several events as values"
"""The case of an end that says `plain` in its `Hello`, which need not read the one before."""


def published(event: dict[str, Any]) -> Parcel:
    return Parcel.of("", to_batch(event))


def delivered(*events: dict[str, Any]) -> Parcel:
    batch = pa.RecordBatch.from_pylist(list(events), schema=to_batch(events[0]).schema)
    return Parcel.of("ann/1", batch).stamped("ann/1", 7, TIME_US)


CLIENT: Final[dict[str, list[Message]]] = {
    "greeting": [
        Hello("client", "js", PROTOCOL_VERSION, token="t", incarnation="i"),
        Hello("client", "js", PROTOCOL_VERSION, session="s1", received=7, identity="team"),
    ],
    "connection": [Ping(), Pong(), StreamAck(70_000), Bye("closed"), Bye("suspended")],
    "single events": [Publish(published(QUOTE), 1), Publish(published(QUOTE), 2, durable=True)],
    "two schemas": [
        Publish(published(QUOTE), 1),
        Publish(published(ALL_TYPES), 2, durable="home"),
        Publish(published(QUOTE), 3),
        Publish(published(LONG), 4),
    ],
    "subscriptions": [
        Subscribe(1, 1, "price < :limit", {"limit": 10}),
        Subscribe(
            2, 2, "n > 0", durable="orders", lease_s=60.5, session_epoch=1, ack_timeout_s=30.0
        ),
        SubscribeAll((Subscribe(3, 3, "a = 1"), Subscribe(4, 4, "b = 1"))),
        Update(5, 1, {"limit": 9.5}),
        Replace(6, 1, "price > :limit", {"limit": 20}),
        Acknowledge(2, 17),
        Acknowledge(2, 17, held=20, bookmark=b"\x01"),
        Acknowledge(2, 0, others=(19,), seqs=(7, 9)),
        Nack(2, 19, (8,), 2.5, "busy"),
        Unsubscribe(7, 2, forget=True),
        Settle(8),
    ],
    "advertisements": [Advertise(1, 1, "price > 0"), Unadvertise(2, 1), Withdraw(3, "price > 1")],
    "identities and questions": [Cancel(1, "price > 0"), Query(2, "status")],
    "operators": [
        RemoveBroker(1, "b2"),
        Apply(2, ""),
        Drain(3, "b1", undo=True),
        AddPeer(4, "palio://127.0.0.1:7401"),
        RemovePeer(5, "b2"),
    ],
}

BROKER: Final[dict[str, list[Message]]] = {
    "greeting": [
        Welcome("b1", "s1", False, 0, "js/i", 5.0, 30.0),
        Welcome("b1", "s1", True, 7, "js/i", 5.0, 30.0),
    ],
    "connection": [Ping(), Pong(), StreamAck(2), Bye("NotAuthenticated", "no token")],
    "answers": [
        Done(1),
        Done(2, unreached=("b2",), others=(3, 4)),
        Failed(5, Failure("ParseError", "expected a value", {"position": 3})),
        Answer(6, {"brokers": ["b1"]}),
        Accepted(3, "durable"),
        Refused(4, 5, Failure("NotPermitted", "not granted")),
    ],
    "single events": [
        Deliver(delivered(QUOTE), subscriptions=(1,)),
        Deliver(delivered(ALL_TYPES), key=2, entry=17),
        Deliver(delivered(QUOTE), key=2, entry=16, attempt=2),
    ],
    ARROW: [
        Deliver(delivered(*[ALL_TYPES] * 3), b"\x05"),
        Deliver(delivered(ALL_TYPES, dict.fromkeys(ALL_TYPES)), key=2, entry=18),
    ],
    PLAIN: [Deliver(delivered(ALL_TYPES, dict.fromkeys(ALL_TYPES)), key=2, entry=18)],
    "losses and ends": [
        Gaps((Gap("ann/1", 1, 5, 4), Gap("*", 0, 0, 0, key=2, reason="b2 was down"))),
        Blocked(2, is_blocked=True),
        Bookmarked(2, b"\x01"),
        Withdrawn((1,)),
        Ended((1, 2), Failure("NotPermitted", "the grant has changed")),
        Redirect(("palio://127.0.0.1:7401",)),
        Assembled(3, (Occurrence(TIME, "ann/1", 7, {"n": 1}),)),
    ],
}

ENDS: Final = {"client": CLIENT, "broker": BROKER}


def frames_of(messages: list[Message], *, plain: bool) -> list[str]:
    """The buffers of one connection, in hexadecimal; a frame may be two."""
    encoder = Encoder()
    encoder.plain = plain
    return [b"".join(map(bytes, encoder.encode(message))).hex() for message in messages]


def plain(message: Message) -> Any:
    """A message as JSON has it."""
    kinds = bytes, datetime
    return _plain(msgspec.to_builtins(message, builtin_types=kinds, enc_hook=_hook))


def _hook(value: Any) -> Any:
    if not isinstance(value, Parcel):
        return dict(value)
    types = [_NAMES[kind] for kind in value.shape.schema.types]
    rows = [[row.get(name) for name in value.shape.names] for row in value.rows]
    return {
        "publisher": value.publisher,
        "columns": [list(column) for column in zip(value.shape.names, types, strict=True)],
        "rows": [
            [
                {"int64": str(cell)} if kind == "int64" and cell is not None else cell
                for kind, cell in zip(types, row, strict=True)
            ]
            for row in rows
        ],
    }


def _plain(value: Any) -> Any:
    match value:
        case bytes():
            return {"binary": value.hex()}
        case datetime():
            text = value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
            return {"timestamp": text}
        case dict():
            return {key: _plain(part) for key, part in value.items()}
        case list() | tuple():
            return [_plain(part) for part in value]
        case _:
            return value


def recorded(end: str) -> str:
    """The file of an end, as it is to be."""
    cases = [
        {
            "name": name,
            "frames": frames_of(said, plain=name == PLAIN),
            "messages": [plain(each) for each in said],
        }
        for name, said in ENDS[end].items()
    ]
    return json.dumps(cases, indent=1, ensure_ascii=False) + "\n"


def path_of(end: str) -> Path:
    return FOLDER / f"{end}.json"


def main() -> None:
    """Record all frames anew."""
    for end in ENDS:
        path_of(end).write_text(recorded(end), encoding="utf-8")


if __name__ == "__main__":
    main()
