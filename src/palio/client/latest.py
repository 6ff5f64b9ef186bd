"""`begin_with_latest`: gives a new subscription the last value for each key, ahead of live events.

The subscription is in force before the broker is asked. So each event is among the last values, or
waits in the queue, or both: then the queue has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from palio.client.broker_upstream import BrokerUpstream
from palio.client.events import ANY_PUBLISHER, Gap
from palio.client.registration import Registration
from palio.model.events import SEQ
from palio.model.parcels import Parcel
from palio.model.shapes import Shape
from palio.protocol.messages import Answer, Query


async def begin_with_latest(upstream: BrokerUpstream, registration: Registration, key: str) -> None:
    """Queue the broker's last matching events by a key ahead of those that came meanwhile."""
    filter, values = str(registration.what), dict(registration.values)
    try:
        answer: Answer = await upstream.ask(
            Query(0, "latest", {"by": key, "filter": filter, "values": values})
        )
    except BaseException:
        registration.abandon()
        raise
    with registration.queue.ahead() as behind:
        came = {
            (single.publisher, single.first_seq) for queued in behind for single in queued.singles()
        }
        for publisher, row in answer.data["events"]:
            if (publisher, row[SEQ]) not in came:
                upstream.dispatcher.deliver_durable(registration, _lone(publisher, row), [0], 0)
    if answer.data["dropped"]:
        reason = (
            f"the broker {upstream.session.broker!r} had no room for {answer.data['dropped']:,} "
            f"last values by {key!r} (LATEST_BYTES)"
        )
        registration.lose(Gap(ANY_PUBLISHER, 0, 0, 0, reason))


def _lone(publisher: str, row: Mapping[str, Any]) -> Parcel:
    present = {name: value for name, value in row.items() if value is not None}
    shape = Shape(tuple(present), tuple(map(type, present.values())))
    return Parcel.lone(publisher, shape, tuple(present.values()))
