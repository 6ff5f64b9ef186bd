"""`Leaving`: hands over clients and durable subscriptions before a broker stops.

```
  begin: paths avoid this broker, others redirect no client to it (`LEAVING`, a fact)
  stop:  the same, at a higher cost than that of brokers that have only begun
  sweep: clients       --Redirect-->  they move, and disconnect once in force elsewhere
         durables      --Adopt----->  a peer claims it; it moves there as any other does
         events        --Carry----->  as ever, until nothing is left
```

A broker that is stopped (`Node.leave`) keeps its durable subscriptions. One that a client *drains*
(`Drain`) hands these over, too, while that client's session lasts: if the session ends early, the
broker returns to service. A drained broker stays empty until `undo` or a restart.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from palio.errors import Closed, InvalidInput
from palio.node.core import Callbacks, Core
from palio.node.fact_verifier import LEAVING, LOG
from palio.node.history import HISTORY_OWNER
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
    """Hands over one broker's clients and subscriptions, and adopts those of peers that leave."""

    def __init__(self, core: Core, peers: Peers, publish_barrier: PublishBarrier) -> None:
        self._core = core
        self._peers = peers
        self._publish_barrier = publish_barrier
        self.is_leaving = False
        # True once clients were redirected.
        self._has_begun = False
        # The session that drains this broker. It is not redirected.
        self._asker: Session | None = None
        # True if durable subscriptions are handed over as well.
        self._is_drained = False
        self.is_done = False
        """True once all is handed over. The session that drains it is not needed from then on."""
        # The time since which this broker is empty, and its last journal offset then.
        self._emptied: tuple[float, int] | None = None
        # The brokers that do not know of it; None until the wave is answered.
        self._unreached: tuple[str, ...] | None = None
        # By redirected client, the time of the last `Redirect`.
        self._redirected: dict[Session, float] = {}
        # When the last of them left, or the first could.
        self._last_left_at = 0.0
        # By offered durable subscription, the time of the last offer.
        self._offered_at: dict[str, float] = {}
        # Takes peers and addresses in turn.
        self._turn = 0

    # --- leaving ---

    def begin(self) -> None:
        """Let paths avoid this broker, and redirect its clients."""
        if not self.is_leaving:
            self._peers.step_aside(LEAVING_LINK_COST)
            self._begin()

    def stop(self) -> None:
        """The same for a broker that is about to stop."""
        self._peers.step_aside(STOPPING_LINK_COST)
        if not self.is_leaving:
            self._begin()

    def _begin(self) -> None:
        core = self._core
        self.is_leaving, self._last_left_at = True, core.at.now
        core.durability.cluster_state.announce(LEAVING, filter="TRUE")
        core.report("info", "drain_started")

    @property
    def is_ready(self) -> bool:
        """True if clients may be redirected, as paths avoid this broker where they can. Events that
        clients have published are forwarded by then, so that what they publish elsewhere does not
        overtake these.
        """
        is_waiting = self.is_leaving and not self._has_begun
        return is_waiting and self._core.router.is_in_order and not len(self._publish_barrier)

    def redirect_if_ready(self) -> None:
        """Redirect the first clients, if that is due."""
        if self.is_ready:
            self._redirect_first()

    def _redirect_first(self) -> None:
        self._has_begun, self._last_left_at = True, self._core.at.now
        for _ in islice(self._redirect(), STEPS):
            pass

    def ask(self, session: Session, request: Drain) -> None:
        """Serve a client that drains this broker, polls its progress, or undoes it."""
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
        session.send(self._core.out, Answer(request.id, self.remaining()))

    def _undo(self, reason: str) -> None:
        """Return to service."""
        if self.is_leaving:
            self.is_leaving = self._has_begun = self._is_drained = self.is_done = False
            self._asker = None
            self._redirected.clear()
            self._offered_at.clear()
            self._peers.step_aside(None)
            self._core.durability.cluster_state.announce(LEAVING)
            self._core.catch_up.announce_log()
            self._core.report("info", "drain_cancelled", reason=reason)

    def remaining(self) -> dict[str, Any]:
        """Return how much is yet to be handed over, and how many peers could adopt it."""
        core = self._core
        return {
            "clients": sum(session is not self._asker for session in core.sessions.values()),
            "durable_subscriptions": len(core.durability.here),
            "entries": core.durability.events.queues.entries,
            "neighbours": len(self._adopters()),
            "unreached": list(self._unreached or ()),
            "done": self.is_done,
        }

    def _check_done(self) -> None:
        """Note that all is handed over: this broker is empty, all brokers know that, and for
        `QUIET_S` no entry has arrived that was in flight.
        """
        core, events = self._core, self._core.durability.events
        is_empty = (
            all(session is self._asker for session in core.sessions.values())
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
            core.durability.cluster_state.announce(LOG)  # an empty journal is no loss when it goes
            core.report("info", "drain_finished")

    def _confirm_empty(self) -> None:
        """Send a wave that finds brokers which do not know that this one is empty."""
        core = self._core
        emptied = self._emptied = (core.at.now, core.durability.events.log.last_offset)
        self._unreached = None

        def on_answer(unreached: tuple[str, ...]) -> None:
            if self._emptied is emptied:
                self._unreached = unreached

        core.when_known(on_answer)

    @property
    def has_gone(self) -> bool:
        """True if there is no client to wait for: all have left, or no more of them leave."""
        core = self._core
        return (
            not any(neighbour.link is not None for neighbour in core.neighbours.values())
            or not any(
                session.link is not None and session is not self._asker
                for session in core.sessions.values()
            )
            or (self._has_begun and core.at.now - self._last_left_at > STALLED_S)
        )

    # --- the sweep ---

    def sweep(self) -> Iterator[int]:
        """Send the redirects and offers that are due, step by step."""
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
                self._undo("the session that drained it has ended")
            else:
                yield from self._offer()

    def _redirect(self) -> Iterator[int]:
        """Redirect clients, and once more those that are still here."""
        core, now = self._core, self._core.at.now
        left = [
            session for session in self._redirected if core.sessions.get(session.id) is not session
        ]
        for session in left:
            del self._redirected[session]
            self._last_left_at = now
        urls = self._urls()
        for session in list(core.sessions.values()):
            is_due = now - self._redirected.get(session, -REDIRECT_AGAIN_S) >= REDIRECT_AGAIN_S
            if is_due and session.link is not None and session is not self._asker:
                self._redirected[session] = now
                self._turn += 1
                turn = self._turn % max(1, len(urls))
                session.send(core.out, Redirect((*urls[turn:], *urls[:turn])))
                yield 1

    def _urls(self) -> list[str]:
        """Return addresses of other brokers, the nearest first."""
        cluster_state = self._core.durability.cluster_state
        urls: list[str] = []
        for broker in cluster_state.by_distance():
            address = self._core.address_book.of(broker)
            if address is not None and not cluster_state.is_leaving(broker):
                urls.append(str(address))
                if len(urls) == MAX_URLS:
                    break
        return urls

    # --- durable subscriptions ---

    def _adopters(self) -> list[Neighbour]:
        """Return the peers that may receive everything, so that adoption withholds nothing."""
        core = self._core
        return [
            neighbour
            for neighbour in core.neighbours.values()
            if neighbour.link is not None
            and neighbour.principal.may_receive_all
            and not core.durability.cluster_state.is_leaving(neighbour.name)
        ]

    def _offer(self) -> Iterator[int]:
        """Offer durable subscriptions of disconnected owners to peers in turn. One that is still
        here later is offered to the next peer.
        """
        core, now, adopters = self._core, self._core.at.now, self._adopters()
        here = core.durability.here
        self._offered_at = {
            subject: at for subject, at in self._offered_at.items() if subject in here
        }
        if not adopters:
            return
        due = (
            durable
            for durable in list(here.values())
            if not durable.consumers
            and durable.owner != HISTORY_OWNER
            and core.durability.lives_here(durable.subject)
            and now - self._offered_at.get(durable.subject, -OFFER_AGAIN_S) >= OFFER_AGAIN_S
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
            adopters[self._turn % len(adopters)].send(core.out, offer)
            yield STEPS // ADOPTED_AT_ONCE

    def adopt(self, neighbour: Neighbour, offer: Adopt) -> None:
        """Adopt a durable subscription of a peer that is about to stop.

        Only if the newest claim is that peer's own; otherwise the peer offers it once more later.
        """
        core, events = self._core, self._core.durability.events
        claim = events.claims.newest(offer.subject, events.overlay)
        if self.is_leaving or claim is None or claim.home != neighbour.name:
            return
        filter = filter_of(claim)
        if filter is None or str(filter) != claim.filter:
            return  # it stays at a broker that can read it
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
            return  # its owner has connected elsewhere since
