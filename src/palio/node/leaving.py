"""`Leaving`: a broker that is about to go hands over what it has, and keeps no one back.

```
  begin: ways lead round it, others tell nobody to come here (`LEAVING`, a fact)
  stop:  the same, and ways lead rather through others that have begun
  look:  clients       --Redirect-->  they move, and leave when all is in force elsewhere
         durables      --Adopt----->  a neighbour claims it, and it moves there as any other does
         events        --Carry----->  as ever, until nothing is left
```

One that is stopped (`Node.leave`) keeps its durable subscriptions. One that is *drained* by a
client (`Drain`) hands over these, too, for as long as the session of that client lasts: who is
interrupted leaves the broker in service. Once it is done it stays empty, until it is told to `undo`
that or restarts.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from palio.errors import Closed, InvalidInput
from palio.node.core import Callbacks, Core
from palio.node.fact_verifier import LEAVING, LOG
from palio.node.interests import filter_of
from palio.node.limits import ADOPTED_AT_ONCE, OFFER_AGAIN_S, QUIET_S, REDIRECT_AGAIN_S, STALLED_S
from palio.node.operations import Claim
from palio.node.peers import STEPS, Peers
from palio.node.publish_barrier import PublishBarrier
from palio.node.sessions import Durable, Neighbour, Session
from palio.protocol.limits import MAX_URLS
from palio.protocol.messages import NO_SESSION_EPOCH, Adopt, Answer, Drain, Redirect, SessionEpoch
from palio.routing.trees import LEAVING_LINK_COST, STOPPING_LINK_COST


class Leaving:
    """The last work of a broker before it goes, and what it takes over of others that go."""

    def __init__(self, core: Core, peers: Peers, publish_barrier: PublishBarrier) -> None:
        self._core = core
        self._peers = peers
        self._publish_barrier = publish_barrier
        self.is_leaving = False
        self._has_begun = False
        """True if clients were asked to go."""
        self._asker: Session | None = None
        """The session that has it drained, which stays as long as it likes."""
        self._is_drained = False
        """True if durable subscriptions are handed over as well."""
        self.is_done = False
        """True if all is handed over. What was drained then needs nobody to see to it."""
        self._emptied: tuple[float, int] | None = None
        """Since when there is nothing here, and which entry came last before that."""
        self._unreached: tuple[str, ...] | None = None
        """Since then: the brokers that do not know it; None until that is found out."""
        self._redirected: dict[Session, float] = {}
        """Clients that were asked to go, and when."""
        self._last_left_at = 0.0
        """When the last of them has gone, or the first could go."""
        self._offered_at: dict[str, float] = {}
        """Durable subscriptions that were offered to a neighbour, and when."""
        self._turn = 0
        """Neighbours and addresses are taken in turn."""

    # --- going ---

    def begin(self) -> None:
        """Let ways lead round this broker, and send its clients elsewhere."""
        if not self.is_leaving:
            self._peers.step_aside(LEAVING_LINK_COST)
            self._begin()

    def stop(self) -> None:
        """The same of one that is not there for long any more."""
        self._peers.step_aside(STOPPING_LINK_COST)
        if not self.is_leaving:
            self._begin()

    def _begin(self) -> None:
        core = self._core
        self.is_leaving, self._last_left_at = True, core.at.now
        core.durability.cluster_state.announce(LEAVING, filter="TRUE")
        core.report("info", "leaving")

    @property
    def is_ready(self) -> bool:
        """True if ways lead round this broker, if they can, so that its clients may go. What they
        had published before is on its way then: what they publish elsewhere does not overtake it.
        """
        is_waiting = self.is_leaving and not self._has_begun
        return is_waiting and self._core.router.is_in_order and not len(self._publish_barrier)

    def redirect_if_ready(self) -> None:
        """The first clients go, if they may."""
        if self.is_ready:
            self._redirect_first()

    def _redirect_first(self) -> None:
        self._has_begun, self._last_left_at = True, self._core.at.now
        for _ in islice(self._redirect(), STEPS):
            pass

    def ask(self, session: Session, request: Drain) -> None:
        """A client has the broker drained, asks how far that is, or has it undone."""
        session.principal.check_operate("drain a broker")
        if request.broker != self._core.name:
            raise InvalidInput(
                f"this is the broker {self._core.name!r}, not {request.broker!r:.80}"
            )
        if request.undo:
            self._undo("it was undone")
        else:
            self._asker, self._is_drained = session, True
            self.begin()
        session.say(self._core.out, Answer(request.id, self.remaining()))

    def _undo(self, reason: str) -> None:
        """The broker is in service again."""
        if self.is_leaving:
            self.is_leaving = self._has_begun = self._is_drained = self.is_done = False
            self._asker = None
            self._redirected.clear()
            self._offered_at.clear()
            self._peers.step_aside(None)
            self._core.durability.cluster_state.announce(LEAVING)
            self._core.announce_log()
            self._core.report("info", "in_service", reason=reason)

    def remaining(self) -> dict[str, Any]:
        """Return how much is yet to be handed over, and to how many neighbours that could be."""
        core = self._core
        return {
            "clients": sum(each is not self._asker for each in core.sessions.values()),
            "durable_subscriptions": len(core.durability.here),
            "entries": core.durability.events.queues.entries,
            "neighbours": len(self._adopters()),
            "unreached": list(self._unreached or ()),
            "done": self.is_done,
        }

    def _check_done(self) -> None:
        """All is handed over if there is nothing here, all brokers know that, and nothing has come
        for some time that was on its way.
        """
        core, events = self._core, self._core.durability.events
        is_empty = (
            all(each is self._asker for each in core.sessions.values())
            and not core.durability.here
            and not events.queues.entries
            and core.router.is_in_order
            and core.durability.cluster_state.has_published_all
        )
        since = self._emptied
        if not is_empty or (since is not None and since[1] != events.log.last_offset):
            self._emptied = None
        elif since is None or self._unreached:
            self._confirm_empty()
        elif self._unreached is not None and core.at.now - since[0] >= QUIET_S and not self.is_done:
            self.is_done = True
            core.durability.cluster_state.announce(LOG)  # nothing is lost with it
            core.report("info", "drained")

    def _confirm_empty(self) -> None:
        """There is nothing here any more: find out who does not know that."""
        core = self._core
        emptied = self._emptied = (core.at.now, core.durability.events.log.last_offset)
        self._unreached = None

        def known(unreached: tuple[str, ...]) -> None:
            if self._emptied is emptied:
                self._unreached = unreached

        core.when_known(known)

    @property
    def has_gone(self) -> bool:
        """True if no client is to be waited for: all have gone, or no more of them go."""
        core = self._core
        return (
            not any(each.link is not None for each in core.neighbours.values())
            or not any(
                each.link is not None and each is not self._asker for each in core.sessions.values()
            )
            or (self._has_begun and core.at.now - self._last_left_at > STALLED_S)
        )

    # --- a look round ---

    def sweep(self) -> Iterator[int]:
        """Tell and offer what is due, step by step."""
        if not self.is_leaving:
            return
        sessions, asker = self._core.sessions, self._asker
        if asker is not None and sessions.get(asker.id) is not asker:
            self._asker = None
        if self._has_begun:
            yield from self._redirect()
        elif self._core.at.now - self._last_left_at > STALLED_S:
            self._redirect_first()
        if self._is_drained:
            self._check_done()
            if self._asker is None and not self.is_done:
                self._undo("who had it drained has gone")
            else:
                yield from self._offer()

    def _redirect(self) -> Iterator[int]:
        """Ask clients to go, and those again that are here still."""
        core, now = self._core, self._core.at.now
        for session in [
            each for each in self._redirected if core.sessions.get(each.id) is not each
        ]:
            del self._redirected[session]
            self._last_left_at = now
        urls = self._urls()
        for session in list(core.sessions.values()):
            is_due = now - self._redirected.get(session, -REDIRECT_AGAIN_S) >= REDIRECT_AGAIN_S
            if is_due and session.link is not None and session is not self._asker:
                self._redirected[session] = now
                self._turn += 1
                turn = self._turn % max(1, len(urls))
                session.say(core.out, Redirect((*urls[turn:], *urls[:turn])))
                yield 1

    def _urls(self) -> list[str]:
        """Where other brokers can be reached, the nearest of them."""
        cluster_state = self._core.durability.cluster_state
        found = []
        for broker in cluster_state.by_distance():
            address = (
                None if cluster_state.is_leaving(broker) else self._core.address_book.of(broker)
            )
            if address is not None:
                found.append(str(address))
                if len(found) == MAX_URLS:
                    break
        return found

    # --- durable subscriptions ---

    def _adopters(self) -> list[Neighbour]:
        """Neighbours that may receive everything, so that nothing is withheld from them."""
        core = self._core
        return [
            each
            for each in core.neighbours.values()
            if each.link is not None
            and each.principal.may_receive_all
            and not core.durability.cluster_state.is_leaving(each.name)
        ]

    def _offer(self) -> Iterator[int]:
        """Offer durable subscriptions whose owners are away to neighbours in turn.
        One that was offered and is here still is offered to the next.
        """
        core, now, adopters = self._core, self._core.at.now, self._adopters()
        here = core.durability.here
        self._offered_at = {each: at for each, at in self._offered_at.items() if each in here}
        if not adopters:
            return
        due = (
            each
            for each in list(here.values())
            if each.session is None
            and core.durability.lives_here(each.subject)
            and now - self._offered_at.get(each.subject, -OFFER_AGAIN_S) >= OFFER_AGAIN_S
        )
        for durable in islice(due, ADOPTED_AT_ONCE):
            self._offered_at[durable.subject] = now
            self._turn += 1
            bookmark = core.durability.bookmarks.get(durable.subject)
            claim = core.durability.events.claims.stored(durable.subject)
            session_epoch = (
                NO_SESSION_EPOCH
                if claim is None
                else SessionEpoch(claim.client, claim.session_epoch)
            )
            offer = Adopt(durable.subject, durable.lease_s, session_epoch, bookmark)
            adopters[self._turn % len(adopters)].say(core.out, offer)
            yield STEPS // ADOPTED_AT_ONCE

    def adopt(self, neighbour: Neighbour, offer: Adopt) -> None:
        """A neighbour is about to go: its durable subscription lives here from now on.

        Only what it has claimed itself, and nobody after it. Else it offers that again in a while.
        """
        core, events = self._core, self._core.durability.events
        claim = events.claims.newest(offer.subject, events.overlay)
        if self.is_leaving or claim is None or claim.home != neighbour.name:
            return
        filter = filter_of(claim)
        if filter is None or str(filter) != claim.filter:
            return  # it stays where it can be read
        owner = offer.subject.partition("/")[0]
        durable = Durable(offer.subject, owner, filter, {}, offer.lease_s)
        asked = Claim(
            offer.subject,
            0,
            core.name,
            *offer.session_epoch,
            claimed_us=core.at.wall_us,
            filter=claim.filter,
        )

        def adopted() -> None:
            if offer.bookmark and core.durability.bookmarks.keep(offer.subject, offer.bookmark):
                core.perform(events.acknowledge(core.at.now, offer.subject, 0, (), offer.bookmark))
            core.report("info", "durable_adopted", subscription=offer.subject, of=neighbour.name)

        callbacks = Callbacks(adopted, lambda _reason: None)
        record = core.durability.record(durable)
        try:
            core.perform(events.open(core.at.now, asked, record, callbacks))
        except Closed:
            return  # its owner has come elsewhere since
