"""`InboundDispatcher`: each counted message of a client or a neighbour, handed to the room it is
for.

A large message of events comes part by part (`up_to`), with others served in between; it counts
once all of it was taken (`Stream.begun`).
"""

from __future__ import annotations

from typing import Final

from palio.errors import IllegalMessage, PalioError
from palio.model.advertisements import UnreadAdvertisement
from palio.model.filters import UnreadFilter
from palio.node.admin_queries import AdminQueries
from palio.node.core import Core
from palio.node.leaving import Leaving
from palio.node.membership import Membership
from palio.node.name_validation import check_names
from palio.node.peers import Peers
from palio.node.publishing import Publishing
from palio.node.requests import AnsweredRequest, ClientRequest, RequestHandler
from palio.node.sessions import Neighbour, PeerSession, Session
from palio.protocol.batches import mark_of, part_of
from palio.protocol.failures import failure
from palio.protocol.legal_parcels import check_numbered
from palio.protocol.messages import (
    AddPeer,
    Adopt,
    Carry,
    Digest,
    Drain,
    EntriesStored,
    Facts,
    Failed,
    FlowAcks,
    FlowStatus,
    Forward,
    Message,
    Probe,
    Probed,
    Publish,
    Query,
    RemovePeer,
    Route,
    Seek,
    Settle,
    Sought,
    SubscribeAll,
)
from palio.routing.messages import Batch, Control, Flood

_Answered: Final = AnsweredRequest | Settle | Query | Drain | AddPeer | RemovePeer
"""Requests of clients that each have an answer of their own."""

_UNREAD: Final = UnreadFilter | UnreadAdvertisement


class InboundDispatcher:
    """Passes each message of the clients and neighbours of one broker to its handler."""

    def __init__(
        self,
        core: Core,
        publishing: Publishing,
        admin_queries: AdminQueries,
        requests: RequestHandler,
        membership: Membership,
        leaving: Leaving,
        peers: Peers,
    ) -> None:
        self._core = core
        self._publishing = publishing
        self._admin_queries = admin_queries
        self._requests = requests
        self._membership = membership
        self._leaving = leaving
        self._peers = peers

    def take(self, session: PeerSession | None, message: Message, up_to: int | None) -> None:
        """Process a message of a session, or its rows up to `up_to` if parts of it follow; raise
        what is wrong with it.
        """
        if session is None:
            raise IllegalMessage("a stranger", f"{type(message).__name__} before any greeting")
        kind = type(message)
        if kind not in session.MAY_SAY:
            allowed = "clients" if session.peer.is_client else "brokers"
            raise IllegalMessage(session.peer, f"{kind.__name__} is not for {allowed}")
        is_part = up_to is not None or session.stream.rows_begun > 0
        if isinstance(session, Session):
            if self._peers.ends_if_unseen(session):
                return
            if not isinstance(message, Publish):
                self._from_client(session, message)
            elif is_part:
                self._publish_part(session, message, up_to)
            else:
                self._publishing.publish(session, message)
        elif isinstance(session, Neighbour):
            if not isinstance(message, Forward):
                self._from_broker(session, message)
            elif is_part:
                self._forward_part(session, message, up_to)
            else:
                self._publishing.forward(session, message)
        if up_to is None:
            session.arrived(self._core.out, message)

    def answer(self, session: PeerSession | None, message: Message, error: PalioError) -> bool:
        """Inform a client that its request came to nothing, as this broker has failed on it. False:
        nobody waits for an answer.
        """
        requests = message.requests if isinstance(message, SubscribeAll) else (message,)
        ids = [request.id for request in requests if isinstance(request, _Answered)]
        if not isinstance(session, Session) or not ids:
            return False
        for id in ids:
            session.send(self._core.out, Failed(id, failure(error)))
        session.arrived(self._core.out, message)
        return True

    def _publish_part(self, session: Session, message: Publish, up_to: int | None) -> None:
        """Some rows of what a client publishes, which was admitted as a whole."""
        mark = mark_of(message)
        first = session.stream.begun(mark)
        end = len(message.parcel) if up_to is None else up_to
        is_admitted = first > 0 or self._publishing.admits(session, message)
        session.stream.begin(mark, max(first, end) if is_admitted else len(message.parcel))
        if is_admitted and first < end:
            self._publishing.accept(session, part_of(message, first, end))

    def _forward_part(self, neighbour: Neighbour, message: Forward, up_to: int | None) -> None:
        """Some rows of what a neighbour passes on."""
        check_numbered(neighbour.name, message.parcel)
        mark = mark_of(message)
        first = neighbour.stream.begun(mark)
        end = len(message.parcel) if up_to is None else up_to
        neighbour.stream.begin(mark, max(first, end))
        if first < end:
            self._publishing.forward(neighbour, part_of(message, first, end))

    def _from_client(self, session: Session, message: Message) -> None:
        match message:
            case Query() | Drain():
                try:
                    self._answer(session, message)
                except PalioError as error:
                    session.send(self._core.out, Failed(message.id, failure(error)))
            case AddPeer() | RemovePeer():
                self._membership.serve(session, message)
            case _ if isinstance(message, ClientRequest):
                self._requests.serve(session, message)

    def _answer(self, session: Session, request: Query | Drain) -> None:
        if isinstance(request, Query):
            self._admin_queries.ask(session, request.id, request.what, request.about)
        else:
            self._leaving.ask(session, request)

    def _from_broker(self, neighbour: Neighbour, message: Message) -> None:
        core = self._core
        check_names(neighbour.name, message)
        match message:
            case Route(control):
                self._routed(neighbour, control)
            case FlowStatus() | FlowAcks():
                self._publishing.multicasting.receive(neighbour, message)
            case Carry() | EntriesStored() | Adopt():
                self._kept(neighbour, message)
            case Facts():
                core.durability.cluster_state.receive(neighbour.name, message, core.at)
            case Digest():
                core.durability.cluster_state.receive(neighbour.name, message, core.at)
                core.attach_link(neighbour)
            case Probe():
                self._admin_queries.probe(neighbour, message)
            case Probed():
                self._admin_queries.probed(neighbour, message)
            case Seek():
                self._admin_queries.seeking.receive_seek(neighbour, message)
            case Sought():
                self._admin_queries.seeking.receive_sought(neighbour, message)

    def _kept(self, neighbour: Neighbour, message: Carry | EntriesStored | Adopt) -> None:
        """Durable events on their way, or a durable subscription that is handed over."""
        if isinstance(message, Carry):
            self._publishing.carrying.carry(neighbour, message)
        elif isinstance(message, EntriesStored):
            self._publishing.carrying.stored(neighbour, message)
        else:
            self._leaving.adopt(neighbour, message)

    def _routed(self, neighbour: Neighbour, control: Control) -> None:
        """Pass a message of a neighbour's router to the router here."""
        core = self._core
        if isinstance(control, Batch | Flood):
            self._tell_unread(neighbour, control)
        allowed, denied = core.assembling.restrict_incoming(neighbour.principal, control)
        if denied:
            core.warn("grant_exceeded", neighbour.name, denied, message=type(control).__name__)
        if allowed is not None:
            core.route(core.router.receive(neighbour.peer, allowed))
        core.note_tree_change(neighbour, control)

    def _tell_unread(self, neighbour: Neighbour, control: Batch | Flood) -> None:
        """Log filters that could not be read, and what becomes of them."""
        filters = (getattr(request, "filter", None) for request in control.requests)
        unread = [filter.text for filter in filters if isinstance(filter, _UNREAD)]
        if unread:
            self._core.warn_unreadable(neighbour.name, unread)
