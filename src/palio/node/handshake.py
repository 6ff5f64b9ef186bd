"""`Handshake`: opens or resumes the session of a client or broker on a new connection.

The end that dialled sends a `Hello`, and the other answers with a `Welcome`. If this broker still
has the session, it continues on the new connection, and lost messages are retransmitted. Otherwise
a new session begins.
"""

from __future__ import annotations

from collections.abc import Collection

from palio.errors import IllegalMessage, NotSupported
from palio.node.admin_queries import AdminQueries
from palio.node.authority import Principal
from palio.node.core import Core
from palio.node.effects import Send
from palio.node.links import Link, Links
from palio.node.membership import Membership
from palio.node.peer_discovery import PeerDiscovery
from palio.node.peers import Peers, cycle_error
from palio.node.sessions import PeerSession
from palio.protocol.limits import PROTOCOL_VERSION
from palio.protocol.messages import Bye, Challenge, Hello, Welcome
from palio.protocol.names import check_name
from palio.routing.algorithms import ALGORITHMS, GraphKind


class Handshake:
    """Handles the handshake messages of clients and brokers, whichever side has dialled."""

    def __init__(
        self,
        core: Core,
        links: Links,
        peers: Peers,
        admin_queries: AdminQueries,
        peer_discovery: PeerDiscovery,
        membership: Membership,
    ) -> None:
        self._membership = membership
        self._core = core
        self._peer_discovery = peer_discovery
        self._links = links
        self._peers = peers
        self._admin_queries = admin_queries

    def receive_hello(self, link: int, state: Link, hello: Hello) -> None:
        """Open or resume the session of a client or broker that has dialled this one."""
        core = self._core
        if hello.version != PROTOCOL_VERSION:
            reason = (
                f"it speaks version {hello.version} of the protocol, this broker "
                f"{PROTOCOL_VERSION}; install the same Palio at both ends"
            )
            raise IllegalMessage(f"link {link}", reason)
        check_name(hello.name, f"a {hello.role:.20}")
        if hello.role == "client":
            principal = core.authority.authenticate(hello.token, state.transport_name, core.at)
            self._accept_client(link, state, hello, principal)
        elif hello.role == "broker":
            outcome = state.introduction.verify_hello(hello)
            if isinstance(outcome, Challenge):
                core.out.append(Send(link, outcome))
            else:
                self._accept_broker(link, state, hello, outcome)
        else:
            raise IllegalMessage(f"link {link}", f"{hello.role!r} is no role")

    def _accept_client(self, link: int, state: Link, hello: Hello, principal: Principal) -> None:
        core = self._core
        # Without authentication a client owns what it claims: there is no proven name to go by.
        owner = hello.name if state.introduction.is_open else principal.name
        if hello.incarnation:
            check_name(hello.incarnation, "an incarnation")
        if hello.identity:
            check_name(hello.identity, "an identity")
            if not state.introduction.is_open:
                principal.check_identity(hello.identity)
        session = core.sessions.get(hello.session)
        if (
            session is not None
            and (session.owner, session.identity) == (owner, hello.identity)
            and session.principal.grants == principal.grants  # they have narrowed its filters
            and session.stream.knows(hello.received)
        ):
            session.principal = principal
            self._resume(link, state, session, hello, session.publisher)
            return
        session = self._peers.new_session(owner, hello.identity, hello.incarnation, principal, link)
        state.session = session
        self._welcome(link, state, session, resumed=False, publisher=session.publisher)
        core.route(core.router.attach(session.peer))
        core.report("debug", "session_opened", client=owner, session=session.id)

    def _accept_broker(self, link: int, state: Link, hello: Hello, principal: Principal) -> None:
        core = self._core
        self._membership.check(hello.name)
        existing = core.neighbours.get(hello.name)
        if existing is not None and existing.link is not None:
            # Both ends have dialled at once, and must close the same connection: they keep the one
            # that the broker with the lesser name dialled.
            ours = self._links.get(existing.link)
            if ours is not None and ours.dialed and core.name < hello.name:
                self._links.close(link, Bye("duplicate", "there is a link already"))
                return
        if existing is not None and existing.resumes(hello.session, hello.received):
            existing.principal = principal
            self._resume(link, state, existing, hello, "")
            return
        if hello.seeks and not self._peer_discovery.accepts_call(hello.name):
            reason = "the fallback link is not needed: another path leads here, or soon will"
            self._links.close(link, Bye("closed", reason))
            return
        if existing is not None:
            self._peers.end_neighbour(existing)
        self._check_routing(hello.name, hello.routing, hello.parents)
        neighbour = self._peers.new_neighbour(core.new_id(), hello.name, principal, link)
        state.session = neighbour
        self._welcome(link, state, neighbour, resumed=False)
        self._peers.attach(neighbour)

    def receive_welcome(self, link: int, state: Link, welcome: Welcome) -> None:
        """Open or resume the session with a broker that this one has dialled."""
        core = self._core
        check_name(welcome.name, "the broker that was dialled")
        self._peer_discovery.check(state.url, welcome.name)
        self._membership.check(welcome.name, state.url)
        if state.url and not (welcome.resumed or self._membership.dials(state.url)):
            # An operator removed the link while it was being dialled.
            self._links.close(link, Bye("closed", "the link is needed no longer"))
            return
        principal = state.introduction.verify_welcome(welcome)
        existing = core.neighbours.get(welcome.name)
        if (
            welcome.resumed
            and existing is not None
            and existing.resumes(welcome.session, welcome.received)
        ):
            existing.principal = principal
            self._continue(link, state, existing, welcome.received)
            return
        if welcome.resumed:
            raise IllegalMessage(welcome.name, "it resumes an unknown session")
        if existing is not None:
            self._peers.end_neighbour(existing)
        self._check_routing(welcome.name, welcome.routing, welcome.parents)
        neighbour = self._peers.new_neighbour(welcome.session, welcome.name, principal, link)
        state.session = neighbour
        self._peers.attach(neighbour)

    def _check_routing(self, name: str, theirs: str, parents: Collection[str]) -> None:
        """Refuse a link that the routing algorithm cannot use (`NotSupported`)."""
        core = self._core
        mine = core.settings.routing_with(name)
        if mine and theirs and mine != theirs:
            raise NotSupported(
                f"{name!r} routes by {theirs!r} and {core.name!r} by {mine!r}; set the same "
                "broker.routing for both, or put a gateway between them"
            )
        algorithm = ALGORITHMS.get(mine)
        is_below, is_above = name in core.settings.parents, core.name in parents
        if algorithm is not None and algorithm.has_parents and is_below == is_above:
            raise NotSupported(
                f"with {mine!r} one of two linked brokers is the other's parent, and of "
                f"{core.name!r} and {name!r} {'each' if is_above else 'neither'} is; set "
                "broker.parent (--parent) of the lower one to the name of the other"
            )
        shape = core.settings.graph_with(name)
        if shape is GraphKind.ALONE:
            raise NotSupported(
                f"{core.name!r} is a {mine} broker and has no neighbours; connect clients to it"
            )
        if shape is GraphKind.TREE and core.durability.cluster_state.next_hop(name) is not None:
            raise cycle_error(core.name, name, mine)

    def _welcome(
        self, link: int, state: Link, session: PeerSession, *, resumed: bool, publisher: str = ""
    ) -> None:
        core, settings = self._core, self._core.settings
        received = session.stream.received
        token, proof, routing = "", b"", ""
        parents: tuple[str, ...] = ()
        heartbeat, grace = settings.heartbeat_s, settings.client_grace_s
        if not session.peer.is_client:
            token, proof = state.introduction.token_and_proof(session.peer.name)
            heartbeat, grace = settings.peer_heartbeat_s, settings.peer_grace_s
            routing, parents = settings.routing_with(session.peer.name), settings.parents
        welcome = Welcome(
            core.name,
            session.id,
            resumed,
            received,
            publisher,
            heartbeat,
            grace,
            token,
            proof,
            routing,
            parents,
        )
        core.out.append(Send(link, welcome))

    def _resume(
        self, link: int, state: Link, session: PeerSession, hello: Hello, publisher: str
    ) -> None:
        self._welcome(link, state, session, resumed=True, publisher=publisher)
        self._continue(link, state, session, hello.received)

    def _continue(self, link: int, state: Link, session: PeerSession, received: int) -> None:
        """Move a session to a new connection, and retransmit the messages that were lost."""
        self._links.close_replaced(session, "resumed on another connection")
        state.session, session.link = session, link
        session.seen(received)
        self._core.out += [Send(link, message) for message in session.stream.resume(received)]
        self._core.resume_sending(session)
