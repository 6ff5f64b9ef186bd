"""Plans as JSON documents, which `palio plan` writes and reads, and as the short texts of bounded
cost that brokers send each other.
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from typing import Any, Final

import msgspec
import numpy as np

from palio.errors import FileDamaged, InvalidInput, PalioError
from palio.model.limits import check_limit
from palio.multicast.broker_sets import MAX_BROKERS
from palio.multicast.clustered import MAX_GROUPS, ClusteredGroups
from palio.multicast.epochs import MAX_GROUPS_IN_USE, check_usable
from palio.multicast.limits import MAX_PACKED_CHARS, MAX_UNPACKED_BYTES
from palio.multicast.listed import HybridGroups, listed
from palio.multicast.neighbours import NeighbourGroups
from palio.multicast.plans import GroupPlan

FORMAT: Final = 1
"""Version of the format."""


_UNREADABLE: Final = (AttributeError, LookupError, TypeError, ValueError, OverflowError)
"""Errors for content of another shape."""


class _Document(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    format: int
    method: str
    brokers: tuple[str, ...]
    content: dict[str, Any]
    report: dict[str, Any] = {}


def encode(plan: GroupPlan, report: dict[str, Any] | None = None) -> bytes:
    """Encode a plan with its measured costs.

    >>> from palio.multicast.listed import flooding
    >>> decode(encode(flooding(("b1", "b2"))))[0].method
    'flooding'
    """
    document = _Document(
        format=FORMAT,
        method=plan.method,
        brokers=plan.brokers,
        content=plan.document(),
        report=report or {},
    )
    return msgspec.json.format(msgspec.json.encode(document), indent=0) + b"\n"


def decode(data: bytes, most_groups: int = MAX_GROUPS) -> tuple[GroupPlan, dict[str, Any]]:
    """Decode a plan and its measured costs."""
    try:
        document = msgspec.json.decode(data, type=_Document)
        if document.format != FORMAT:
            raise InvalidInput(
                f"its format is {document.format}, not {FORMAT}; make the plan again"
            )
        if len(document.brokers) > MAX_BROKERS:
            raise InvalidInput(f"it has more than {MAX_BROKERS:,} brokers")
        return _plan(document, most_groups), document.report
    except (msgspec.DecodeError, RecursionError, *_UNREADABLE, PalioError) as error:
        raise FileDamaged(f"this is no plan of groups: {error}") from error


def _plan(document: _Document, most: int) -> GroupPlan:
    brokers, content = document.brokers, document.content
    match document.method:
        case "ideal" | "flooding" | "approximated":
            return listed(document.method, brokers, content, most)
        case "clustered" | "threshold":
            return _clustered(brokers, content, most)
        case "neighbours":
            return NeighbourGroups(brokers, content["graph"])
        case "hybrid":
            edge = _clustered(brokers, content["edge"], most)
            across = listed("approximated", brokers, content["across"], most - edge.group_count)
            return HybridGroups(edge, across, float(np.float64(content["send_price"])))
    raise InvalidInput(f"{document.method!r:.80} is no method")


def _clustered(brokers: tuple[str, ...], content: dict[str, Any], most: int) -> ClusteredGroups:
    return ClusteredGroups(brokers, content["clusters"], content.get("threshold"), most)


def pack(plan: GroupPlan, report: dict[str, Any] | None = None) -> str:
    """Encode a plan as a text that `unpack` reads; one too large to be in use is refused.

    >>> from palio.multicast.listed import flooding
    >>> unpack(pack(flooding(("b1", "b2"))))[0].brokers
    ('b1', 'b2')
    """
    check_usable(plan)
    data = encode(plan, report)
    check_limit("the bytes of a plan in use", "MAX_UNPACKED_BYTES", MAX_UNPACKED_BYTES, len(data))
    return b64encode(zlib.compress(data, 9)).decode()


def unpack(text: str) -> tuple[GroupPlan, dict[str, Any]]:
    """Decode a plan and its report from a text."""
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
        raise FileDamaged("this is no plan of groups: it is cut short, or followed by other data")
    plan, report = decode(data, MAX_GROUPS_IN_USE)
    check_usable(plan)
    return plan, report
