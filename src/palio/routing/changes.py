"""`Change`: the tree gives up a link for another, or turns one, while no event is under way.

An event that is on its way when the tree changes under it is lost, or comes by two ways out of
order. So brokers that learn of a plan that exchanges links (`TreePlan.calm`) go through rounds. A
broker sends `Reached` on a link once all its *other* links have sent it, so that the word goes from
the leaves through the tree and back, one for each direction of each link:

0. *Still*, on the links in use: what enters the network here waits, and nothing comes from beyond.
   As links keep order, a broker that has received it on all its links has all events behind it.
   Then it leaves the links that the plan does not hold, or not this way up, and joins those that it
   does.
1. *Done*, on the links of the plan: what is wanted beyond has been sent on this link.
2. Where there are advertisements, told again: subscriptions have followed what was advertised.

After the last round what had to wait proceeds. A link that breaks is one less to wait for, and
who is not on the way to that plan, or no longer, says at once that it has reached all. Who decides
by itself meanwhile, since it has started over, joins no link of that plan, and is not waited for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from palio.routing.messages import LAST_ROUND, Reached, TreePlan
from palio.routing.protocol import Peer, Send

NOTHING: Final = -1
"""A neighbour has sent no round yet..."""

NOT_IN_USE: Final = -2
"""...or cannot, as the link is yet to be joined."""


class Change:
    """One broker on its way from the tree that it has to that of a plan.

    >>> one, two = Peer.broker("b1"), Peer.broker("b2")
    >>> change = Change(TreePlan("b1", 7, (("b1", "b2"),), calm=True), has_offers=False)
    >>> change.go_on({one: -1, two: -1}), change.go_on({one: 0, two: -1})[0].to.name
    ([], 'b2')
    >>> change.go_on({one: 0, two: 0})[0].to.name, change.round
    ('b1', 1)
    """

    def __init__(self, plan: TreePlan, *, has_offers: bool) -> None:
        self.plan = plan
        self.round = 0
        """The round that this broker is in."""
        self._last = LAST_ROUND if has_offers else LAST_ROUND - 1
        self._said: dict[Peer, int] = {}
        self._lost: set[Peer] = set()
        """Neighbours whose link broke meanwhile. They may go by a plan of their own since."""

    @property
    def is_over(self) -> bool:
        """True if all rounds are done."""
        return self.round > self._last

    def heard(self, message: Reached | None) -> int:
        """Return the round of this change that a neighbour has sent."""
        if message is None or not self.is_to((message.origin, message.version)):
            return NOTHING
        return message.round

    def is_to(self, plan: tuple[str, int]) -> bool:
        """Return whether this is the way to the plan of an origin and version."""
        return plan == (self.plan.origin, self.plan.version)

    def leads_to(self, plan: TreePlan) -> bool:
        """Return whether all go this way, though another plan is in force now. It is for later if
        it only adds links, below the same root, or if who made both has done all rounds, which
        then all others will do.
        """
        return plan.origin == self.plan.origin or (
            plan.root == self.plan.root and set(plan.links) >= set(self.plan.links)
        )

    def forget(self, peer: Peer) -> None:
        """A link is in use no longer: in its next use all is sent again."""
        self._said.pop(peer, None)

    def lose(self, peer: Peer) -> None:
        """A link broke: it is not waited for, even if it comes back."""
        self._lost.add(peer)

    def go_on(self, heard: Mapping[Peer, int]) -> list[Send]:
        """Return what is to be sent, given the links of this round and what was received on each.
        Once that is sent on all and received on all, the next round begins.
        """
        waiting = {
            peer for peer, said in heard.items() if said < self.round and peer not in self._lost
        }
        sends = []
        for peer, said in heard.items():
            if said == NOT_IN_USE:
                continue
            others = len(waiting) - (peer in waiting)
            reached = self.round if not others else self.round - 1
            if self._said.get(peer, NOTHING) < reached:
                self._said[peer] = reached
                sends.append(Send(peer, Reached(self.plan.origin, self.plan.version, reached)))
        self.round += not waiting
        return sends
