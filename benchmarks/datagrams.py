"""What datagrams cost: their bytes, and the CPU time to seal and to open or to drop one.

python -m benchmarks.datagrams [--count 5000]
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from time import process_time
from typing import Any, Final

from palio.model.events import to_batches
from palio.model.parcels import Parcel
from palio.multicast.datagrams import Datagram
from palio.protocol.datagrams import SALT_BYTES, GroupKey, Opener, Sealer

ROUNDS: Final = 7
QUOTE: Final = {"symbol": "IBM", "price": 123.25, "volume": 700, "is_bid": True}


def parcel(rows: int) -> Parcel | None:
    """So many events of four attributes, stamped."""
    if not rows:
        return None
    (batch,) = to_batches([QUOTE] * rows)
    return Parcel.of("", batch).stamped("ann/1", 1, 1_700_000_000_000_000)


def cost(call: Callable[[Any], object], make: Callable[[], Sequence[Any]]) -> float:
    """Microseconds of CPU for one of what `make` gives: the median of some rounds."""
    took = []
    for _ in range(ROUNDS):
        some = make()
        began = process_time()
        for each in some:
            call(each)
        took.append((process_time() - began) / len(some) * 1e6)
    return median(took)


def seal_all(sealer: Sealer, datagrams: Sequence[Datagram]) -> list[list[bytes]]:
    """The packets of each."""
    return [sealer.seal(each) for each in datagrams]


def open_all(opener: Opener, packets: Sequence[bytes]) -> None:
    """All packets of a datagram."""
    for packet in packets:
        opener.open(packet, 0.0)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--count", type=int, default=5_000)
    count = parser.parse_args().count
    key = GroupKey(os.urandom(32))
    sealer, opener = Sealer(key, salt=os.urandom(SALT_BYTES)), Opener(key, "b2")

    print(f"{'events':>8} {'members':>8} {'bytes':>8} {'packets':>8} {'seal us':>8} {'open us':>8}")
    for rows, members in ((0, 12), (1, 12), (1, 100), (10, 12), (100, 12), (1_000, 12)):
        sent = Datagram("b1", 1_700_000_000, 1_234, 3, 1, bytes(4 * members), parcel(rows))
        packets = sealer.seal(sent)
        some = [sent] * max(1, count // max(rows, 1))
        seal = cost(sealer.seal, partial(list, some))
        whole = cost(partial(open_all, opener), partial(seal_all, sealer, some))
        size = sum(map(len, packets))
        print(f"{rows:8} {members:8} {size:8} {len(packets):8} {seal:8.1f} {whole:8.1f}")
    assert not any(opener.dropped.values())

    (packet,) = sealer.seal(Datagram("b1", 1_700_000_000, 1_234, 3, 1, bytes(48), parcel(1)))
    forged = packet[:-1] + bytes([packet[-1] ^ 1])
    for what, data in (
        ("noise", os.urandom(len(packet))),
        ("forged, of a stream that is heard", forged),
        ("a copy", packet),
    ):
        opener.open(data, 0.0)
        took = cost(partial(opener.open, now=0.0), partial(list, [data] * count))
        print(f"{what} dropped: {took:.1f} us")


if __name__ == "__main__":
    main()
