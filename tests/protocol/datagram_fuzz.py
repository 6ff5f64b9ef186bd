"""Packets as an attacker of the network sends them, and as a broker that went mad seals them.

`Fuzz` sends an `Opener` real packets, some late, some twice, and between them altered, cut,
spliced, made up and foreign ones. It knows all that was sealed: nothing else may come out, and
nothing twice.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from typing import Any, Final

from palio.model.events import to_batches
from palio.model.parcels import Parcel
from palio.multicast.datagrams import Datagram
from palio.protocol.datagrams import OVERHEAD_BYTES, SALT_BYTES, UNSHARED, GroupKey, Opener, Sealer
from palio.protocol.group_keys import STREAM_BYTES, Ciphers
from palio.protocol.limits import MAX_MTU, MIN_MTU

KEY: Final = GroupKey(bytes(range(32)))
RECENT: Final = 256
"""Packets that are taken to be altered or sent again."""

_HEAD: Final = OVERHEAD_BYTES - 16


def flat(one: Datagram) -> Any:
    """As plain data, since parcels are compared by identity."""
    held = one.parcel
    if held is None:
        return one
    of = held.publisher, held.shape.schema, held.batch.to_pylist(), held.values
    return *one[:6], *of, *one[7:]


def parcels(rng: random.Random) -> list[Parcel | None]:
    """Lone events and batches of several shapes and sizes, and none."""
    rows: list[dict[str, Any]] = [
        {"x": 1},
        {"x": -1.5, "text": "IBM", "bytes": b"\0\xff", "flag": True},
        {f"a{place}": place for place in range(30)},
        {"text": "ä" * 700},
        {"text": "z" * 4_000, "x": 1},
    ]
    made: list[Parcel | None] = [None]
    for seq, row in enumerate(rows):
        (batch,) = to_batches([row] * rng.randint(1, 12))
        made.append(Parcel.of("", batch.slice(0, 1)).stamped("ann/1", seq, 1_700_000_000_000_000))
        made.append(Parcel("", batch).stamped("bob/2", seq, 1_700_000_000_000_000))
    return made


class Fuzz:
    """An opener, those who send to it, and what is known of all that they sealed."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.opener = Opener(KEY, "me")
        self.now = 0.0
        self.sent = Counter[str]()
        self.opened = 0
        self.ciphers = Ciphers(KEY)
        self.foreign = Sealer(UNSHARED, salt=bytes(SALT_BYTES))
        self.lives = {"b1": 1, "b2": 1, "b3": 1, "me": 1}
        self.sealers = {
            name: self.sealer(mtu)
            for name, mtu in zip(self.lives, (1_400, MIN_MTU, MAX_MTU, 1_400), strict=True)
        }
        self.counter = 0
        self.parcels = parcels(rng)
        self.known: dict[int, Datagram] = {}
        """What was sealed of late and has not been opened, by number."""
        self.number = 0
        self.recent = deque[bytes](maxlen=RECENT)
        self.late = deque[bytes]()

    def sealer(self, mtu: int) -> Sealer:
        return Sealer(KEY, mtu, salt=self.rng.randbytes(SALT_BYTES))

    def run(self, inputs: int) -> None:
        """Send so many packets."""
        choices = (self.real, self.again, self.altered, self.cut, self.spliced, self.noise)
        rare = (self.from_foreign, self.from_mad, self.new_life)
        self.real()
        while sum(self.sent.values()) < inputs:
            self.now += 0.000_1
            self.rng.choice(rare if self.rng.random() < 0.1 else choices)()
        for packet in self.late:
            self.hear("late", packet)

    def hear(self, kind: str, packet: bytes) -> Datagram | None:
        """Send one, and see that what comes out was sealed and has not come before."""
        self.sent[kind] += 1
        found = self.opener.open(packet, self.now)
        if found is None:
            return None
        assert found.source != "me"
        if kind == "mad":
            assert_legal(found)
            return None
        self.opened += 1
        assert flat(found) == flat(self.known.pop(found.number))
        return found

    # --- honest ---

    def real(self) -> None:
        """A datagram whose packets come now, or some of them later, or never, or in disorder."""
        rng = self.rng
        name = rng.choice(list(self.sealers))
        self.number += 1
        counts = rng.randbytes(4 * rng.randint(0, 12))
        held, durable = rng.choice(self.parcels), rng.random() < 0.5
        plan = rng.randint(1, 3)
        datagram = Datagram(name, self.lives[name], plan, 3, self.number, counts, held, durable)
        packets = self.sealers[name].seal(datagram)
        self.known[self.number] = datagram
        self.known.pop(self.number - 20_000, None)
        if rng.random() < 0.3:
            rng.shuffle(packets)
        in_time = [packet for packet in packets if rng.random() < 0.98]
        found = [self.hear("real", packet) for packet in in_time]
        if len(in_time) == len(packets) and name != "me":
            assert any(found), self.opener.dropped
        self.recent.extend(packets)
        self.late.extend(packet for packet in packets if packet not in in_time)
        if len(self.late) > RECENT:
            self.hear("late", self.late.popleft())

    def some(self) -> bytes:
        """A packet that was sealed of late; it has come, or is still to come."""
        return self.rng.choice(self.late if self.late and self.rng.random() < 0.5 else self.recent)

    def again(self) -> None:
        """A copy: it opens only if the first one never came."""
        self.hear("again", self.some())

    # --- from the network ---

    def altered(self) -> None:
        """Some bits are flipped, at any place or in the head."""
        before = self.some()
        packet = bytearray(before)
        last = self.rng.choice((STREAM_BYTES, _HEAD, len(packet)))
        for _ in range(self.rng.randint(1, 4)):
            packet[self.rng.randrange(last)] ^= 1 << self.rng.randrange(8)
        if bytes(packet) != before:
            assert self.hear("altered", bytes(packet)) is None

    def cut(self) -> None:
        """Bytes are missing, or more."""
        packet = self.some()
        cut = packet[: self.rng.randrange(len(packet))]
        assert self.hear("cut", self.rng.choice((cut, packet + cut))) is None or not cut

    def spliced(self) -> None:
        """The beginning of one and the end of another: of a piece, another piece's."""
        one, other = self.some(), self.some()
        at = self.rng.choice((STREAM_BYTES, _HEAD, len(one) // 2, len(one) - 16))
        if one[:at] + other[at:] not in (one, other):
            assert self.hear("spliced", one[:at] + other[at:]) is None

    def noise(self) -> None:
        """Bytes of anybody, behind a stream that there is or none."""
        rng = self.rng
        size = int(rng.expovariate(1 / 300))
        if rng.random() < 0.01:
            size = MAX_MTU + rng.randint(-1, 1)
        known = rng.choice((b"", self.some()[: rng.choice((1, STREAM_BYTES, _HEAD))]))
        assert self.hear("noise", known + rng.randbytes(size)) is None

    def from_foreign(self) -> None:
        """A datagram of a network with another key."""
        foreign = Datagram("b1", 99, 1, 3, self.number, b"", self.rng.choice(self.parcels))
        assert self.hear("foreign", self.foreign.seal(foreign)[0]) is None

    # --- brokers ---

    def new_life(self) -> None:
        """A sender starts anew: nothing of its former incarnation is heard any more."""
        if self.rng.random() > 0.01:
            return
        name = self.rng.choice(("b1", "b2", "b3"))
        self.lives[name] += 1
        self.sealers[name] = self.sealer(self.rng.choice((MIN_MTU, 1_400, 9_000)))

    def from_mad(self) -> None:
        """Who has the key seals what no broker says: whatever opens is legal."""
        rng = self.rng
        incarnation = rng.choice((1, 1, 1, 1 << 40, -1))
        sealer = Sealer(KEY, MAX_MTU, salt=bytes(SALT_BYTES))
        held = rng.choice(self.parcels)
        (packet,) = sealer.seal(Datagram("mad", incarnation, 1, 3, 1, rng.randbytes(8), held))
        stream = packet[:STREAM_BYTES]
        cipher = self.ciphers.cipher(stream)
        message = bytearray(
            cipher.decrypt(packet[_HEAD - 12 : _HEAD], packet[_HEAD:], packet[:_HEAD])
        )
        for _ in range(rng.randint(0, 3)):
            place = (
                rng.randrange(len(message))
                if rng.random() < 0.5
                else rng.randrange(40) % len(message)
            )
            change = rng.random()
            if change < 0.7:
                message[place] = rng.choice((rng.randrange(256), 0xC0, 0xFF, message[place] ^ 1))
            elif change < 0.9:
                del message[place : place + rng.randint(1, 4)]
            else:
                message[place:place] = rng.randbytes(rng.randint(1, 8))
        self.counter += 1
        head = stream + self.counter.to_bytes(_HEAD - STREAM_BYTES, "little")
        self.hear("mad", head + cipher.encrypt(head[-12:], bytes(message), head))


def assert_legal(found: Datagram) -> None:
    """What any receiver relies on."""
    assert min(found.incarnation, found.plan, found.group, found.number) >= 0
    assert len(found.counts) % 4 == 0
    if found.parcel is not None:
        found.parcel.batch.validate(full=True)
        assert list(found.parcel.seqs) == sorted(found.parcel.seqs)
