"""`Change`: exchanges or turns links of the tree while no event is in flight.

An event in flight while the tree changes is lost, or arrives over two paths out of order. So
brokers that receive a calm plan (`TreePlan.calm`) go through rounds. A broker sends `Reached` on a
link once all its *other* links have sent it. The messages so run from the leaves inwards and back,
one for each direction of each link:

0. *Still*, on the links in use: this broker holds the events of its clients, and no event comes
   from beyond it. As links keep order, a broker that has received this round on all links has
   received all events. Then it leaves links that the plan lacks or turns, and joins the plan's.
1. *Done*, on the links of the plan: all requests from beyond have been sent on this link.
2. The same once more where there are advertisements, as subscriptions follow advertisements.

After the last round brokers forward the events that they held. No broker waits for a link that
broke. A broker that is not changing to the plan, or is done, sends all rounds at once. One that
restarted and decided by itself joins no link of the plan, and does not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from palio.routing.messages import LAST_ROUND, Reached, TreePlan
from palio.routing.protocol import Peer, Send

NOTHING: Final = -1
"""The round of a neighbour that has sent none yet."""

NOT_IN_USE: Final = -2
"""The round of a neighbour that cannot send one, as the link is yet to be joined."""


class Change:
    """One broker's change from its tree to that of a plan.

    >>> one, two = Peer.broker("b1"), Peer.broker("b2")
    >>> change = Change(TreePlan("b1", 7, (("b1", "b2"),), calm=True), has_offers=False)
    >>> change.advance({one: -1, two: -1}), change.advance({one: 0, two: -1})[0].to.name
    ([], 'b2')
    >>> change.advance({one: 0, two: 0})[0].to.name, change.round
    ('b1', 1)
    """

    def __init__(self, plan: TreePlan, *, has_offers: bool) -> None:
        self.plan = plan
        self.round = 0
        self._last = LAST_ROUND if has_offers else LAST_ROUND - 1
        self._sent: dict[Peer, int] = {}
        # Neighbours whose link broke meanwhile may follow a plan of their own by now, even if the
        # link is up again.
        self._skipped: set[Peer] = set()

    @property
    def is_over(self) -> bool:
        """True if all rounds are done."""
        return self.round > self._last

    def round_of(self, message: Reached | None) -> int:
        """Return the round of this change that a neighbour has sent."""
        if message is None or not self.is_to((message.origin, message.version)):
            return NOTHING
        return message.round

    def is_to(self, plan: tuple[str, int]) -> bool:
        """Return whether this changes to the plan of an origin and version."""
        return plan == (self.plan.origin, self.plan.version)

    def is_compatible_with(self, plan: TreePlan) -> bool:
        """Return whether all brokers finish this change though another plan is in force now.

        They do if that plan only adds links below the same root, or has the same origin: its broker
        made it after all rounds, which all others will then finish, too.
        """
        return plan.origin == self.plan.origin or (
            plan.root == self.plan.root and set(plan.links) >= set(self.plan.links)
        )

    def reset_link(self, peer: Peer) -> None:
        """Note that a link is out of use: all rounds are sent again in its next use."""
        self._sent.pop(peer, None)

    def skip_link(self, peer: Peer) -> None:
        """Wait no longer for a link that broke, even if it comes back."""
        self._skipped.add(peer)

    def advance(self, rounds: Mapping[Peer, int]) -> list[Send]:
        """Send what is due, given the links of this round and the round that each has sent.

        The next round begins once this one was sent and received on all links.
        """
        missing = {
            peer
            for peer, received in rounds.items()
            if received < self.round and peer not in self._skipped
        }
        sends = []
        for peer, received in rounds.items():
            if received == NOT_IN_USE:
                continue
            # A link waits for all others, not for itself: else both its ends would wait for ever.
            others = len(missing) - (peer in missing)
            reached = self.round if not others else self.round - 1
            if self._sent.get(peer, NOTHING) < reached:
                self._sent[peer] = reached
                sends.append(Send(peer, Reached(self.plan.origin, self.plan.version, reached)))
        self.round += not missing
        return sends
