"""`Node`: one broker as a state machine (docs/concepts/node.md).

Each input is a method call with its time, and returns a list of effects. The node has no clock, no
socket and no disk: its effects depend only on the calls made so far, in their order. So every test
and every simulation repeats exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any, Final

import msgspec

from palio.errors import DamagedFrame, IllegalMessage, PalioError
from palio.matching.protocol import Matcher
from palio.matching.reference import Reference
from palio.multicast.datagrams import Datagram
from palio.node.admin_queries import AdminQueries
from palio.node.authority import Authority, OpenAuthority, Principal
from palio.node.cancelling import Cancelling
from palio.node.catching_up import CatchUp
from palio.node.consumers import Consumers
from palio.node.core import Core
from palio.node.effects import Answered, Close, Effect, Moment, Send, Store
from palio.node.failure_detector import CHECKS_PER_HEARTBEAT, FailureDetector
from palio.node.handshake import Handshake
from palio.node.host import numbered_ids
from palio.node.identity import NOBODY, Identity
from palio.node.inbound_dispatcher import InboundDispatcher
from palio.node.leaving import Leaving
from palio.node.limits import REASON_CHARS
from palio.node.link_drain import LinkDrain
from palio.node.link_state_batcher import LinkStateBatcher
from palio.node.links import Link, Links
from palio.node.membership import Membership
from palio.node.operations import Record
from palio.node.peer_discovery import PeerDiscovery
from palio.node.peers import STEPS, Peers
from palio.node.publishing import Publishing
from palio.node.readiness import CATCHING_UP, DRAINING, UNWRITABLE, Readiness, check_peers
from palio.node.requests import RequestHandler
from palio.node.sessions import Neighbour
from palio.node.settings import Settings
from palio.protocol.messages import (
    UNCOUNTED,
    Bye,
    Challenge,
    Forward,
    Hello,
    Message,
    Ping,
    Pong,
    Publish,
    StreamAck,
    Welcome,
)
from palio.protocol.names import check_name
from palio.protocol.streams import Stream
from palio.routing.protocol import Router

_FREQUENT: Final = (Publish, Forward, Ping, Pong)
"""Messages on the hot path. Their handlers set `Core.has_follow_up` if `settle_up` must run."""


class Node:
    """One broker.

    >>> from palio.node.memory import MemoryStore
    >>> from palio.protocol.limits import PROTOCOL_VERSION
    >>> from palio.protocol.messages import Hello
    >>> from palio.routing.acyclic import Acyclic
    >>> node = Node("b1", Acyclic("b1"), MemoryStore())
    >>> at = Moment(now=0.0, wall_us=0)
    >>> [type(each).__name__ for each in node.start(at)]  # its disk is to know that it begins
    ['Append', 'Append']
    >>> node.accept(1, at)
    []
    >>> hello = Hello("client", "alice", PROTOCOL_VERSION, incarnation="x")
    >>> node.receive(1, hello, at)[0].message.publisher
    'alice/x'
    """

    def __init__(
        self,
        name: str,
        router: Router,
        store: Store,
        *,
        settings: Settings | None = None,
        authority: Authority | None = None,
        identity: Identity = NOBODY,
        new_id: Callable[[], str] | None = None,
        matcher: Callable[[], Matcher] = Reference,
    ) -> None:
        self._core = Core(
            check_name(name, "a broker"),
            router,
            store,
            settings or Settings(),
            authority or OpenAuthority(),
            identity,
            new_id or numbered_ids("session"),
            matcher,
        )
        self._consumers = self._core.consumers = Consumers(self._core)
        self._core.catch_up = CatchUp(self._core)
        self._cancelling = Cancelling(self._core, self._consumers)
        self._publishing = Publishing(self._core)
        self._admin_queries = AdminQueries(self._core, self._publishing)
        self._links = Links(self._core)
        self._peers = Peers(
            self._core,
            self._links,
            self._admin_queries,
            self._publishing.reroutes,
            self._consumers,
        )
        self._link_drain = LinkDrain(self._core, self._links, self._peers)
        self._peer_discovery = PeerDiscovery(self._core, self._links, self._link_drain)
        self._membership = Membership(
            self._core, self._links, self._link_drain, self._peer_discovery
        )
        self._admin_queries.peers = self._membership.peers
        self._handshake = Handshake(
            self._core,
            self._links,
            self._peers,
            self._admin_queries,
            self._peer_discovery,
            self._membership,
        )
        self._leaving = Leaving(self._core, self._peers, self._publishing.publish_barrier)
        self._inbound_dispatcher = InboundDispatcher(
            self._core,
            self._publishing,
            self._admin_queries,
            RequestHandler(self._core, self._peers, self._cancelling, self._consumers),
            self._membership,
            self._leaving,
            self._peers,
        )
        self._failure_detector = FailureDetector(
            self._core, self._links, self._peers, self._publishing
        )
        self._core.on_facts = self._publishing.multicasting.learn
        self._unfinished = (
            self._peers.leaving,
            self._core.table_sync.waiting,
            self._cancelling.unfinished,
            self._publishing.reroutes.pending,
        )
        """Work queues, of which every `tick` handles a slice."""
        self._link_state_batcher = LinkStateBatcher(self._core)
        self._is_closing = False
        self._sweep: Iterator[int] | None = None
        """The rest of a sweep over all connections and leases that has begun."""
        self._next_sweep_at = 0.0
        self.wake_at = 0.0
        """When the node next wants `tick`."""

    @property
    def name(self) -> str:
        """The broker's name, which no other broker of the network may have."""
        return self._core.name

    @property
    def is_leaving(self) -> bool:
        """True if the broker is shutting down, or was drained."""
        return self._leaving.is_leaving

    @property
    def is_free_to_go(self) -> bool:
        """True after `leave`, once paths avoid this broker and its clients have left, as far as
        there are other paths and brokers.
        """
        return self._is_bypassed and self._leaving.has_gone

    @property
    def _is_bypassed(self) -> bool:
        """True if every path that can avoid this broker does."""
        return self._core.router.is_in_order and not len(self._publishing.publish_barrier)

    @property
    def _is_expendable(self) -> bool:
        """True if no other broker loses events or updates once this one is gone."""
        has_backlog = any(peer.queued_bytes for peer in self._core.neighbours.values())
        has_backlog = has_backlog or bool(self._publishing.reroutes.pending)
        return self.is_leaving and self._is_bypassed and not has_backlog

    def principal(self, link: int) -> Principal:
        """Return the principal at the other end of a connection after its handshake."""
        state = self._links.get(link)
        assert state is not None and state.session is not None, "it was welcomed"
        return state.session.principal

    def renew(self, authority: Authority, **limits: float) -> None:
        """Take other keys, grants and limits; sessions that they do not permit end at a sweep."""
        core = self._core
        core.authority = authority
        core.durability.cluster_state.fact_verifier.trust(authority)
        core.settings = msgspec.structs.replace(core.settings, **limits)

    @property
    def _has_unfinished(self) -> bool:
        return (
            any(self._unfinished)
            or self._publishing.publish_barrier.is_over
            or self._leaving.is_ready
        )

    # --- inputs ---

    def start(self, at: Moment) -> list[Effect]:
        """Begin, with the content of the journal."""
        core = self._core
        core.at = at
        self.wake_at = at.now + core.settings.heartbeat_s / CHECKS_PER_HEARTBEAT
        self._next_sweep_at = self.wake_at
        self._failure_detector.schedule()
        self._peer_discovery.begin()
        self._membership.begin()
        core.durability.cluster_state.begin(at.wall_us)
        core.begin()
        self._publishing.begin()
        return self._effects()

    def accept(self, link: int, at: Moment, principal: str = "") -> list[Effect]:
        """Take a new connection; `principal` is the name that the transport has proven, if any."""
        self._core.at = at
        self._links.open(link, dialed=False, transport_name=principal)
        return self._effects()

    def dial(self, link: int, at: Moment, peer: str = "", url: str = "") -> list[Effect]:
        """Greet the broker at a connection that was dialed; `peer` is its name, if known."""
        core = self._core
        core.at = at
        self._peer_discovery.note_connection(url)
        neighbour = core.neighbours.get(peer)
        if neighbour is not None and neighbour.link is not None:
            # The peer has dialed meanwhile. A second link would make it retransmit messages that
            # are in flight on the first.
            core.out.append(Close(link, "duplicate"))
            return self._effects()
        introduction = self._links.open(link, dialed=True, url=url)
        stream = Stream() if neighbour is None else neighbour.stream
        session = "" if neighbour is None else neighbour.id
        seeks = self._peer_discovery.seeks(url)
        hello = introduction.hello(session, stream.received, seeks=seeks)
        core.out.append(Send(link, hello))
        return self._effects()

    def unreachable(self, url: str, reason: str, at: Moment) -> list[Effect]:
        """Note that one attempt to connect to an address has failed."""
        self._core.at = at
        self._peer_discovery.unreachable(url)
        self._membership.unreachable(url, reason)
        return self._effects()

    def reachable_at(self, url: str, at: Moment) -> list[Effect]:
        """Announce this broker's address to all others; empty if it has none."""
        self._core.at = at
        self._core.address_book.announce(url)
        return self._effects()

    def receive(
        self, link: int, message: Message, at: Moment, *, up_to: int | None = None
    ) -> list[Effect]:
        """Handle a message, or its rows up to `up_to`. Errors are answered, never raised."""
        core = self._core
        core.at = at
        state = self._links.get(link)
        if state is None:
            return []  # this node has closed the link with the message in flight
        state.last_received_at = at.now
        kind = type(message)
        core.has_follow_up = kind not in _FREQUENT or core.assembling.router is not None
        if kind in UNCOUNTED:
            try:
                self._handle_uncounted(link, state, message)
            except PalioError as error:
                core.has_follow_up = True
                self._membership.rejected_here(state, error)
                self._links.reject(link, error)
        else:
            try:
                self._inbound_dispatcher.take(state.session, message, up_to)
            except PalioError as error:
                self._refuse(link, state, error)
            except Exception as error:  # noqa: BLE001  # our fault ends no session
                problem = core.fault(kind.__name__, error)
                reason = f"the broker failed on this {kind.__name__} ({problem})"
                failed = IllegalMessage(f"link {link}", reason)
                if not self._inbound_dispatcher.answer(state.session, message, failed):
                    self._refuse(link, state, failed)
        return self._effects()

    def illegal(self, link: int, error: PalioError, at: Moment) -> list[Effect]:
        """Refuse bytes that are no message."""
        self._core.at = at
        state = self._links.get(link)
        if state is not None:
            self._refuse(link, state, error)
        return self._effects()

    def lost(self, link: int, at: Moment) -> list[Effect]:
        """Handle the loss of a connection."""
        self._core.at = at
        self._links.mark_lost(link)
        return self._effects()

    def receive_datagram(self, datagram: Datagram, at: Moment) -> list[Effect]:
        """Handle a datagram, which the host has verified to be from a broker of the network."""
        self._core.at = at
        try:
            self._publishing.multicasting.receive_datagram(datagram)
        except Exception as error:  # noqa: BLE001  # our fault ends no session
            self._core.fault("Datagram", error)
        return self._effects()

    def stored(self, ticket: int, at: Moment) -> list[Effect]:
        """Continue after an `Append` that is on the disk."""
        core = self._core
        core.at = at
        core.perform(core.durability.events.stored(at.now, ticket))
        return self._effects()

    def failed(self, ticket: int, reason: str, at: Moment) -> list[Effect]:
        """Handle an `Append` that the journal refused; nothing of it is on the disk."""
        self._core.at = at
        self._core.failed(ticket, reason)
        return self._effects()

    def writable(self, at: Moment) -> list[Effect]:
        """Resume appends: the journal accepts them, after one that it refused."""
        self._core.at = at
        self._core.writable()
        return self._effects()

    def keep(self, record: Record, answered: Answered, at: Moment) -> list[Effect]:
        """Store or delete a record for a front, and call `answered` with the outcome."""
        self._core.at = at
        self._core.append((record,), partial(answered, None), answered)
        return self._effects()

    def tick(self, at: Moment) -> list[Effect]:
        """Do the work that is due. A sweep runs in slices, so that other inputs get their turn."""
        core = self._core
        core.at = at
        core.lag.note(at.now - self.wake_at, at.now, core.durability.cluster_state.broker_count)
        events = core.durability.events
        is_due = events.wake_at <= at.now
        if is_due:
            core.perform(events.tick(at.now))
        is_due = self._consumers.tick() or is_due
        is_due = self._publishing.multicasting.tick() or is_due
        is_due = self._failure_detector.tick() or is_due
        is_due = self._peer_discovery.tick() or is_due
        self._membership.tick()
        composites = core.assembling.advance(at)
        if composites is not None:
            is_due = True
            core.route(composites)
        if self._has_unfinished:
            is_due = True
            self._publishing.publish_barrier.send_some()
            self._publishing.reroutes.send_next()
            self._peers.let_go()
            core.table_sync.send_next()
            self._cancelling.do_slice()
            self._leaving.redirect_if_ready()
        if is_due and at.now < self._next_sweep_at:
            self.wake_at = at.now if self._sweep else self._next_sweep_at
            return self._effects()
        if self._sweep is None:
            late = max(0.0, at.now - self._next_sweep_at)
            self._sweep = chain(self._failure_detector.sweep(late=late), self._leaving.sweep())
        self.wake_at = at.now
        done = 0
        for steps in self._sweep:
            done += steps
            if done >= STEPS:
                break
        else:
            self._sweep = None
            self._next_sweep_at = at.now + core.settings.heartbeat_s / CHECKS_PER_HEARTBEAT
            self.wake_at = self._next_sweep_at
        return self._effects()

    def leave(self, at: Moment) -> list[Effect]:
        """Prepare to close: have paths avoid this broker, and redirect its clients."""
        self._core.at = at
        self._leaving.stop()
        return self._effects()

    def close(self, at: Moment) -> list[Effect]:
        """Close all connections with a `Bye`, and accept none from now on."""
        self._core.at = at
        self._is_closing = True
        self._publishing.multicasting.flush()
        is_expendable = self._is_expendable
        for link, state in self._links.all():
            if state.session is not None:
                state.session.send_ack(self._core.out)
            in_order = isinstance(state.session, Neighbour) and is_expendable
            self._links.close(link, Bye("closed", "the broker is going down", in_order))
        self._core.perform(self._core.durability.events.flush())
        operations = self._publishing.times.unwritten()
        if operations:
            self._core.append(operations)
        return self._effects()

    # --- connections ---

    def _handle_uncounted(self, link: int, state: Link, message: Message) -> None:
        core, session = self._core, state.session
        if type(message) not in (state.handshake if session is None else session.MAY_SAY):
            raise IllegalMessage(f"link {link}", f"{type(message).__name__} out of place")
        match message:
            case Hello() if self._is_closing:
                self._links.close(link, Bye("closed", "the broker is going down"))
            case Hello():
                self._handshake.receive_hello(link, state, message)
            case Challenge():
                core.out.append(Send(link, state.introduction.prove(message)))
            case Welcome():
                self._handshake.receive_welcome(link, state, message)
                self._membership.linked(state)
            case Ping():
                core.out.append(Send(link, Pong()))
            case Pong() if isinstance(session, Neighbour):
                self._peers.measured(link, session)
            case StreamAck(count) if session is not None:
                session.seen(count)
                core.resume_sending(session)
            case Bye():
                self._handle_bye(link, state, message)

    def _handle_bye(self, link: int, state: Link, bye: Bye) -> None:
        core, session = self._core, state.session
        if session is None and state.dialed and bye.code not in ("closed", "duplicate"):
            core.report("warning", "rejected_by_peer", reason=bye.reason[:REASON_CHARS])
        if bye.code in ("closed", "removed") and session is not None:
            self._peers.left(session, in_order=bye.in_order)
        self._membership.rejected_by_peer(state, bye)
        self._links.mark_lost(link)
        core.out.append(Close(link, bye.code))

    def _refuse(self, link: int, state: Link, error: PalioError) -> None:
        """Refuse a counted message: hang up, and end the session, so that a new one starts afresh.

        A message damaged in transit is not the sender's fault: its session stays, and the sender
        retransmits it, until that has failed several times.
        """
        self._core.has_follow_up = True
        session = state.session
        is_damage = isinstance(error, DamagedFrame)
        if is_damage and session is not None and session.stream.damaged():
            is_damage, error = False, IllegalMessage(session.peer, str(error))
        if isinstance(session, Neighbour) and not is_damage:
            number = session.stream.received + 1
            self._core.warn("message_rejected", session.name, 1, number=number, reason=str(error))
        self._links.reject(link, error)
        if session is not None and not is_damage:
            self._peers.part_with(session)

    def _effects(self) -> list[Effect]:
        core = self._core
        if core.has_follow_up:
            self._follow_up()
        core.has_follow_up = True
        out, core.out = core.out, []
        return out

    def _follow_up(self) -> None:
        """Settle the consequences of the input beyond its own effects, and set the next alarm."""
        core = self._core
        self._link_state_batcher.send_due()
        core.settle_up()
        core.fact_batcher.send_due(core.at.now)
        if self._has_unfinished:
            self.wake_at = core.at.now
        due_at = min(
            core.durability.events.wake_at,
            core.catch_up.due_at,
            core.assembling.due_at(core.at),
            self._consumers.wake_at,
            self._publishing.multicasting.wake_at,
            self._failure_detector.wake_at,
            self._peer_discovery.wake_at,
            self._link_state_batcher.wake_at,
            core.fact_batcher.wake_at,
        )
        # Work that counts only from now on, such as checks of the first neighbour, may have been
        # due long ago. Its alarm is set for now: a past time would count as lag of this broker.
        self.wake_at = min(self.wake_at, max(due_at, core.at.now))

    def status(self) -> dict[str, Any]:
        """Return counts for people and metrics."""
        return self._admin_queries.status()

    def readiness(self) -> Readiness:
        """Return what keeps this broker from serving clients, and warnings."""
        events = self._core.durability.events
        reasons, warnings = check_peers(self._membership.peers())
        present = {
            DRAINING: self.is_leaving,
            CATCHING_UP: not events.is_ready,
            UNWRITABLE: events.log.is_refusing,
        }
        return Readiness(
            (*(reason for reason, is_so in present.items() if is_so), *reasons), warnings
        )
