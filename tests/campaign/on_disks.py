"""What the disks of a network have, for a campaign to know what is gone with one of them."""

from __future__ import annotations

from collections.abc import Mapping

from palio.node.effects import Entry
from palio.node.fact_verifier import is_subscription
from palio.protocol.messages import Fact
from palio.simulation.disks import Disk


def is_end(fact: Fact) -> bool:
    """Whether a broker says that a durable subscription is over."""
    return is_subscription(fact.subject) and not fact.filter


def events_in(entry: Entry) -> set[tuple[str, int]]:
    """Publisher and number of all that is in an entry."""
    return {(entry.parcel.publisher, seq) for seq in entry.parcel.numbers.tolist()}


def events_on(disk: Disk) -> set[tuple[str, int]]:
    """Publisher and number of all that is on a disk."""
    return {event for entry in disk.held() for event in events_in(entry)}


def ends_only_on(broker: str, disks: Mapping[str, Disk]) -> set[str]:
    """Durable subscriptions of which only the disk of the broker that ended them knows that.

    >>> from palio.node.operations import PutFacts
    >>> from palio.protocol.messages import Fact
    >>> gone, other = Disk(), Disk()
    >>> ends = tuple(Fact("b1", version, f"ann/{version}") for version in (1, 2))
    >>> gone.synced.write([PutFacts(ends)])
    >>> other.synced.write([PutFacts(ends[:1])])
    >>> ends_only_on("b1", {"b1": gone, "b2": other})
    {'ann/2'}
    """
    mine = [fact for fact in disks[broker].facts() if fact.origin == broker and is_end(fact)]
    known = {
        (fact.subject, fact.version)
        for name, disk in disks.items()
        for fact in disk.facts()
        if name != broker and fact.origin == broker
    }
    return {fact.subject for fact in mine if (fact.subject, fact.version) not in known}


def lacks_claims(broker: str, disks: Mapping[str, Disk]) -> bool:
    """Whether a disk lacks what another broker has said, and written, of a durable subscription.

    >>> from palio.node.operations import PutFacts
    >>> from palio.protocol.messages import Fact
    >>> disks = {"b1": Disk(), "b2": Disk()}
    >>> disks["b2"].synced.write([PutFacts((Fact("b2", 4, "ann/d", filter="x = 1"),))])
    >>> lacks_claims("b1", disks), lacks_claims("b2", disks)
    (True, False)
    """
    known = {(fact.origin, fact.subject): fact.version for fact in disks[broker].facts()}
    return any(
        known.get((name, fact.subject), 0) < fact.version
        for name, disk in disks.items()
        for fact in disk.facts()
        if fact.origin == name != broker and is_subscription(fact.subject)
    )
