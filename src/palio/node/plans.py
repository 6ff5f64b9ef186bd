"""`Plans`: selects the plan of multicast groups that a network uses, among those that brokers
state.

An operator applies a plan at some broker, which states it in a fact (`PLAN`). Of all stated plans
that of the latest epoch counts; of two with the same epoch, that of the broker with the greater
name. Plans of removed brokers do not count. An empty text withdraws the plan, and so does an
unreadable one: then all brokers use links.
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
from palio.protocol.limits import MAX_NUMBER
from palio.protocol.messages import Fact

# So that it is at most `MAX_NUMBER`.
_ID_BITS: Final = 62

REPLANS: Final = "replans"
"""The name of `NetworkPlan.replans` in a plan's report."""


class NetworkPlan(NamedTuple):
    """A plan that a network uses."""

    id: int
    """The name of the plan in datagrams: two plans differ in it, even if two brokers stated the
    same groups at the same time."""
    epoch_us: int
    """When it was applied, above all epochs before it."""
    origin: str
    """The broker that states it."""
    plan: GroupPlan
    replans: int = 0
    """How often brokers have changed it since it was applied (`palio.node.replanning`)."""


class Plans:
    """The plan that one broker uses, by the facts that it has.

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
        # The brokers that have stated plans.
        self._origins: dict[str, None] = {}
        self._id = 0
        # The last text that was parsed, its plan, and how often that was changed.
        self._last: tuple[str, tuple[GroupPlan, int]] | None = None
        self.current: NetworkPlan | None = None
        self.stated: Fact | None = None
        """The fact that counts, even if it withdraws the plan."""
        self.problem = ""
        """Why the stated plan is not used; empty if it is."""
        self.learn(cluster_state.facts())

    def learn(self, facts: Iterable[Fact]) -> bool:
        """Apply new facts; return whether another plan counts now."""
        is_affected = False
        for fact in facts:
            if fact.subject == PLAN:
                self._origins[fact.origin] = None
                is_affected = True
            is_affected = is_affected or fact.subject.startswith(REMOVED)
        if not is_affected:
            return False
        self.stated = self._newest()
        id = 0 if self.stated is None else epoch_id(self.stated)
        if id == self._id:
            return False
        self._id = id
        self.current = self._read(self.stated)
        return True

    def read(self, text: str) -> tuple[GroupPlan, int]:
        """Return the plan of a text, and how often brokers have changed it. The last one is cached:
        a plan that is applied is read first and counts next, and reading may take 25 ms.
        """
        if self._last is None or self._last[0] != text:
            plan, report = unpack(text)
            count = report.get(REPLANS)
            replans = count if type(count) is int and 0 < count <= MAX_NUMBER else 0
            self._last = text, (plan, replans)
        return self._last[1]

    def next_epoch(self, wall_us: int) -> int:
        """Return the epoch of a plan that is applied now."""
        return wall_us if self.stated is None else max(wall_us, self.stated.claimed_us + 1)

    def _newest(self) -> Fact | None:
        plans = (self._cluster_state.fact(origin, PLAN) for origin in self._origins)
        return max(
            (fact for fact in plans if fact is not None),
            key=lambda fact: (fact.claimed_us, fact.origin),
            default=None,
        )

    def _read(self, fact: Fact | None) -> NetworkPlan | None:
        self.problem = ""
        if fact is None or not fact.filter:
            return None
        try:
            plan, replans = self.read(fact.filter)
        except PalioError as error:
            self.problem = str(error)
            return None
        return NetworkPlan(self._id, fact.claimed_us, fact.origin, plan, replans)


def epoch_id(fact: Fact) -> int:
    """Return the id of the plan that a fact states: never 0.

    >>> one = epoch_id(Fact("b1", 1, PLAN, filter="x", claimed_us=7))
    >>> one == epoch_id(Fact("b1", 2, PLAN, filter="x", claimed_us=7))
    True
    >>> one == epoch_id(Fact("b1", 2, PLAN, filter="x", claimed_us=8))
    False
    """
    text = f"{fact.claimed_us} {len(fact.origin)} {fact.origin} {fact.filter}"
    digest = blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % (1 << _ID_BITS) or 1
