"""`Plans`: which plan of multicast groups a network uses, out of what its brokers have stated.

Whoever applies a plan does it at some broker, which states it in a fact (`PLAN`). Of what all
brokers have stated the newest counts: that of the latest epoch, and of two at the same time that of
the broker whose name is later. Brokers that are retired have stated nothing. An empty text says
that there is no plan, and so does one that cannot be read: then all brokers use links.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final, NamedTuple

from palio.errors import PalioError
from palio.multicast.documents import unpack
from palio.multicast.plans import GroupPlan
from palio.node.cluster_state import ClusterState
from palio.node.fact_verifier import PLAN, REMOVED
from palio.protocol.messages import Fact

_ID_BITS: Final = 62
"""So that it is a `MAX_NUMBER` at most."""


class NetworkPlan(NamedTuple):
    """A plan that a network uses."""

    id: int
    """Return the name that datagrams use for it: two plans have different ones, even if two brokers
    stated the same groups at the same time."""
    epoch_us: int
    """When it was applied, above all epochs before it."""
    origin: str
    """The broker that states it."""
    plan: GroupPlan


class Plans:
    """The plan that counts, as one broker knows it.

    >>> from palio.multicast.listed import flooding
    >>> from palio.multicast.documents import pack
    >>> cluster_state = ClusterState("b1")
    >>> plans = Plans(cluster_state)
    >>> cluster_state.announce(
    ...     PLAN, filter=pack(flooding(("b1", "b2"))), claimed_us=plans.next_epoch(7)
    ... )
    >>> plans.learn(cluster_state.new_facts), plans.current.origin, plans.current.epoch_us
    (True, 'b1', 7)
    """

    def __init__(self, cluster_state: ClusterState) -> None:
        self._cluster_state = cluster_state
        self._origins: dict[str, None] = {}
        """The brokers that have stated plans."""
        self._id = 0
        self._last: tuple[str, GroupPlan] | None = None
        """The plan that was read last."""
        self.current: NetworkPlan | None = None
        self.stated: Fact | None = None
        """The fact that counts, even if it says that there is no plan."""
        self.problem = ""
        """Why the plan that it states is not used."""
        self.learn(cluster_state.facts())

    def learn(self, facts: Iterable[Fact]) -> bool:
        """Facts are new: whether another plan counts now."""
        concerned = False
        for fact in facts:
            if fact.subject == PLAN:
                self._origins[fact.origin] = None
                concerned = True
            concerned = concerned or fact.subject.startswith(REMOVED)
        if not concerned:
            return False
        self.stated = self._newest()
        id = 0 if self.stated is None else epoch_id(self.stated)
        if id == self._id:
            return False
        self._id = id
        self.current = self._read(self.stated)
        return True

    def read(self, text: str) -> GroupPlan:
        """The plan that a text stands for. Who applies one has it read, and then it counts: it is
        remembered, as it may take 25 ms.
        """
        if self._last is None or self._last[0] != text:
            self._last = text, unpack(text)
        return self._last[1]

    def next_epoch(self, wall_us: int) -> int:
        """The epoch of a plan that is applied now."""
        return wall_us if self.stated is None else max(wall_us, self.stated.claimed_us + 1)

    def _newest(self) -> Fact | None:
        known = (self._cluster_state.fact(origin, PLAN) for origin in self._origins)
        return max(
            (fact for fact in known if fact is not None),
            key=lambda fact: (fact.claimed_us, fact.origin),
            default=None,
        )

    def _read(self, fact: Fact | None) -> NetworkPlan | None:
        self.problem = ""
        if fact is None or not fact.filter:
            return None
        try:
            plan = self.read(fact.filter)
        except PalioError as error:
            self.problem = str(error)
            return None
        return NetworkPlan(self._id, fact.claimed_us, fact.origin, plan)


def epoch_id(fact: Fact) -> int:
    """The id of the plan that a fact states: never 0.

    >>> one = epoch_id(Fact("b1", 1, PLAN, filter="x", claimed_us=7))
    >>> one == epoch_id(Fact("b1", 2, PLAN, filter="x", claimed_us=7))
    True
    >>> one == epoch_id(Fact("b1", 2, PLAN, filter="x", claimed_us=8))
    False
    """
    text = f"{fact.claimed_us} {len(fact.origin)} {fact.origin} {fact.filter}"
    found = blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(found, "little") % (1 << _ID_BITS) or 1
