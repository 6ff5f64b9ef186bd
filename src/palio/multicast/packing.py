"""Plans as short texts of bounded cost: what brokers tell each other of one."""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode

from palio.errors import FileDamaged, LimitExceeded
from palio.multicast.documents import decode, encode
from palio.multicast.epochs import MAX_GROUPS_IN_USE, check_usable
from palio.multicast.limits import MAX_PACKED_CHARS, MAX_UNPACKED_BYTES
from palio.multicast.plans import GroupPlan

__all__ = ["pack", "unpack"]


def pack(plan: GroupPlan) -> str:
    """A plan as a text that `unpack` reads; refused if it is too large to be in use.

    >>> from palio.multicast.listed import flooding
    >>> unpack(pack(flooding(("b1", "b2")))).brokers
    ('b1', 'b2')
    """
    check_usable(plan)
    data = encode(plan)
    if len(data) > MAX_UNPACKED_BYTES:
        raise LimitExceeded(
            "the bytes of a plan in use",
            limit="MAX_UNPACKED_BYTES",
            maximum=MAX_UNPACKED_BYTES,
            actual=len(data),
        )
    return b64encode(zlib.compress(data, 9)).decode()


def unpack(text: str) -> GroupPlan:
    """The plan that a text stands for."""
    if len(text) > MAX_PACKED_CHARS:
        raise FileDamaged(f"a plan in use has at most {MAX_PACKED_CHARS:,} characters")
    try:
        inflated = zlib.decompressobj()
        data = inflated.decompress(b64decode(text, validate=True), MAX_UNPACKED_BYTES + 1)
    except (ValueError, zlib.error) as error:
        raise FileDamaged(f"this is no plan of groups: {error}") from error
    if len(data) > MAX_UNPACKED_BYTES:
        raise FileDamaged(f"a plan in use has at most {MAX_UNPACKED_BYTES:,} bytes")
    if not inflated.eof or inflated.unused_data:
        raise FileDamaged("this is no plan of groups: it is cut short, or goes on behind its end")
    plan, _ = decode(data, MAX_GROUPS_IN_USE)
    check_usable(plan)
    return plan
