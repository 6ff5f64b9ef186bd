"""`RequestHandler`: checks requests of clients, puts them in force and answers them.

A request is in force when `Done` answers it; one that `Failed` refuses has no effect. An invalid
request never closes the connection: it does not stop the other subscriptions of its session.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from palio.errors import (
    Closed,
    GroupElsewhere,
    IllegalMessage,
    InvalidBinding,
    InvalidInput,
    LimitExceeded,
    NotPermitted,
    NotStored,
    NotSupported,
    PalioError,
    SubscriptionEnded,
)
from palio.language.parsing import parse, parse_advertisement
from palio.model.filters import Filter
from palio.model.patterns import Pattern
from palio.model.values import NO_VALUES, Bindings
from palio.node.assembling import NO_DURABLE
from palio.node.authority import check_advertisement, narrow
from palio.node.cancelling import Cancelling
from palio.node.consumers import Consumers
from palio.node.core import Callbacks, Core
from palio.node.deliveries import Policy
from palio.node.durability import NO_DISK
from palio.node.durable import UNREADY
from palio.node.fact_verifier import LOG, PLAN
from palio.node.history import HISTORY_OWNER
from palio.node.limits import MAX_PRINCIPAL_COST
from palio.node.operations import Action, Claim, Place
from palio.node.peers import Peers
from palio.node.sessions import Durable, Session, Subscription
from palio.protocol.failures import failure
from palio.protocol.limits import TOGETHER_CHARS, check_seconds
from palio.protocol.messages import (
    Acknowledge,
    Advertise,
    Apply,
    Bookmarked,
    Cancel,
    Done,
    Fact,
    Failed,
    Failure,
    Gap,
    Gaps,
    Nack,
    RemoveBroker,
    Replace,
    SessionEpoch,
    Settle,
    Subscribe,
    SubscribeAll,
    Unadvertise,
    Unsubscribe,
    Update,
    Withdraw,
    Withdrawn,
)
from palio.protocol.names import check_name
from palio.protocol.portions import chars_together
from palio.routing import messages as routing
from palio.routing.algorithms import ALGORITHMS
from palio.routing.patterns.messages import SubscribePattern, UnsubscribePattern
from palio.routing.protocol import Addressing, Peer

AnsweredRequest = (
    Subscribe
    | Replace
    | Update
    | Unsubscribe
    | Advertise
    | Unadvertise
    | Withdraw
    | Cancel
    | RemoveBroker
    | Apply
)
ClientRequest = AnsweredRequest | SubscribeAll | Settle | Acknowledge | Nack


class _PendingUpdate(NamedTuple):
    """An update of a durable subscription that is being written, with the state to restore."""

    session: Session
    id: int
    key: int
    subscription: Subscription
    before: tuple[Filter | Pattern, Bindings]
    """The former filter and values, as the session asked for them."""
    durable: Durable
    narrowed_before: tuple[Filter, Bindings]
    """The same, narrowed by grants."""
    narrowed: Filter
    """The new filter, narrowed by grants."""


_ADVERTISED: Final = ", ".join(
    each.name for each in ALGORITHMS.values() if each.takes_advertisements
)

_NO_ADVERTISEMENTS: Final = (
    "by this broker's routing events count whether they were advertised or not, so that "
    f"advertisements mean nothing; set broker.routing to one of {_ADVERTISED}, or do not advertise"
)


_NO_PLAN: Final = (
    "a plan of groups is for brokers that know which of them an event is for, and by this broker's "
    "routing they do not; set broker.routing to flooded or source-trees"
)


class RequestHandler:
    """Handles the requests of all clients of one broker."""

    def __init__(
        self, core: Core, peers: Peers, cancelling: Cancelling, consumers: Consumers
    ) -> None:
        self._consumers = consumers
        self._core = core
        self._peers = peers
        self._cancelling = cancelling
        self._plan: Fact | None = None
        """The last plan of this broker that is on its disk."""

    def serve(self, session: Session, request: ClientRequest) -> None:
        """Put a request in force and answer it."""
        if isinstance(request, Acknowledge):
            self._consumers.acknowledge(session, request)
        elif isinstance(request, Nack):
            self._consumers.reject(session, request)
        elif session.is_waiting:
            self._defer(session, request)
        elif isinstance(request, Settle):
            self._core.settle(session, request.id)
        elif isinstance(request, SubscribeAll):
            self._subscribe_all(session, request.requests)
        else:
            self._answer(session, request)

    def _answer(self, session: Session, request: AnsweredRequest) -> None:
        is_answered_later = self._is_answered_later(session, request)
        try:
            self._serve(session, request)
        except (PalioError, IllegalMessage) as error:
            session.send(self._core.out, Failed(request.id, failure(error)))
        else:
            if not is_answered_later:
                session.send(self._core.out, Done(request.id))

    @staticmethod
    def _is_answered_later(session: Session, request: AnsweredRequest) -> bool:
        """Return whether a request is answered later: it takes several inputs, or waits for the
        disk, as changes of durable subscriptions do.
        """
        is_durable = False
        if isinstance(request, Replace | Update | Unsubscribe):
            subscription = session.subscriptions.get(request.key)
            is_durable = subscription is not None and bool(subscription.durable)
        match request:
            case Subscribe():
                return bool(request.durable)
            case Replace() | Update():
                return is_durable
            case Unsubscribe():
                return is_durable and request.forget
            case Cancel() | Apply():
                return True
            case _:
                return False

    def _serve(self, session: Session, request: AnsweredRequest) -> None:
        match request:
            case Subscribe():
                self._subscribe(session, (request,))
            case Replace() | Update():
                self._change(session, request)
            case Unsubscribe():
                self._unsubscribe(session, request)
            case Cancel():
                self._cancelling.cancel(session, request)
            case Advertise(_, key, text):
                offer = parse_advertisement(text)
                check_advertisement(offer, session.principal)
                self._check_advertised()
                self._core.publisher_endpoints.advertise(session, key, offer)
            case Unadvertise(_, key):
                self._core.publisher_endpoints.unadvertise(session, key)
            case Withdraw(_, text):
                offer = parse_advertisement(text)
                self._check_advertised()
                for owner, keys in self._core.publisher_endpoints.withdraw(session, offer):
                    owner.send(self._core.out, Withdrawn(tuple(keys)))
            case RemoveBroker(_, broker):
                self._retire(session, broker)
            case Apply():
                self._apply(session, request)

    def _check_advertised(self) -> None:
        if not self._core.router.takes_advertisements:
            raise NotSupported(_NO_ADVERTISEMENTS)

    def _apply(self, session: Session, request: Apply) -> None:
        """Announce a plan, and answer once it is on the disk."""
        core = self._core
        self._check_operate(session, "apply a plan")
        if request.plan and not isinstance(core.router, Addressing):
            raise NotSupported(_NO_PLAN)
        if request.plan:
            core.plans.read(request.plan)
        cluster_state = core.durability.cluster_state
        epoch_us = core.plans.next_epoch(core.at.wall_us)
        before = cluster_state.fact(core.name, PLAN)
        if before is None or cluster_state.is_published(before):
            self._plan = before
        cluster_state.announce(PLAN, filter=request.plan, claimed_us=epoch_us)
        core.report("info", "plan_applied", epoch_us=epoch_us, by=session.owner)

        def done() -> None:
            session.send(core.out, Done(request.id))

        def failed(reason: str) -> None:
            stated = cluster_state.fact(core.name, PLAN)
            if stated is not None and stated.claimed_us == epoch_us:
                filter = "" if self._plan is None else self._plan.filter
                was_us = 1 if self._plan is None else self._plan.claimed_us  # before all others
                cluster_state.announce(PLAN, filter=filter, claimed_us=was_us)
            session.send(core.out, Failed(request.id, _not_stored(reason)))

        core.settle_up()
        core.append((), done, failed)

    def _retire(self, session: Session, broker: str) -> None:
        core, principal = self._core, session.principal
        cluster_state = core.durability.cluster_state
        self._check_operate(session, "retire a broker")
        if broker not in cluster_state.brokers:
            brokers = f"; known are {', '.join(cluster_state.brokers)}"
            known = brokers if principal.may_monitor else ""
            raise InvalidInput(f"there is no broker {broker!r:.80}{known}")
        if broker == core.name or cluster_state.next_hop(broker) is not None:
            raise InvalidInput(
                f"broker {broker!r} is not gone; stop it, and wait until it is missed "
                f"({core.settings.peer_grace_s:g} s, peer_grace_s)"
            )
        core.report("warning", "broker_removed", broker=broker, by=session.owner)
        log = cluster_state.fact(broker, LOG)
        cluster_state.remove(broker, core.at.wall_us)
        if log is not None and log.claimed_us:
            core.catch_up.report_loss(broker)

    def _check_operate(self, session: Session, action: str) -> None:
        """Refuse an action unless both the session and this broker may operate: other brokers act
        on the facts of this broker, and verify its grant.
        """
        session.principal.check_operate(action)
        own = self._core.durability.cluster_state.fact_verifier.own
        if own is not None:
            own.check_operate(action)

    # --- subscriptions ---

    def _subscribe_all(self, session: Session, requests: Sequence[Subscribe]) -> None:
        """Subscribe to all at once; if one is refused, handle each by itself."""
        if sum(map(chars_together, requests)) > TOGETHER_CHARS:
            reason = f"subscriptions that do not go together (TOGETHER_CHARS, {TOGETHER_CHARS})"
            raise IllegalMessage(session.peer, reason)
        try:
            self._subscribe(session, requests)
        except (PalioError, IllegalMessage):
            for each in requests:
                self._answer(session, each)
        else:
            first, *others = [each.id for each in requests]
            session.send(self._core.out, Done(first, others=tuple(others)))

    def _subscribe(self, session: Session, requests: Sequence[Subscribe]) -> None:
        """Put subscriptions in force, all or none."""
        core = self._core
        self._check_quota(session, requests)
        subscriptions: dict[int, Subscription] = {}
        updates: list[routing.Request] = []
        patterns: list[SubscribePattern] = []
        for request in requests:
            key = request.key
            if key in session.subscriptions or key in subscriptions:
                raise IllegalMessage(session.peer, f"key {key} is in use; replace its filter")
            asked = Subscription(
                parse(request.filter), request.values or NO_VALUES, assembled=request.assembled
            )
            if request.assembled:
                if request.durable:
                    raise InvalidInput(NO_DURABLE)
                principal = session.principal
                patterns.append(core.assembling.request(key, asked.what, asked.values, principal))
                subscriptions[key] = asked
                continue
            narrowed = narrow(asked.filter, asked.values, session.principal)
            if request.since_us and not request.durable:
                raise InvalidInput("since= is for durable subscriptions; give a durable_name=")
            if request.durable:  # which comes alone
                self._check_cost(
                    session, {key: asked}, subject=f"{session.owner}/{request.durable}"
                )
                if self._core.durability.events.is_ready:
                    self._subscribe_durable(session, request, asked.what, narrowed)
                else:
                    self._defer(session, request)
                return
            updates.append(routing.Subscribe(key, narrowed, asked.values))
            subscriptions[key] = asked
        # All checks come before the first change, so that a refusal leaves nothing behind.
        self._check_cost(session, subscriptions)
        core.assembling.check_room(session.peer, len(patterns))
        if updates:
            self._update_router(session.peer, *updates)
        for pattern in patterns:
            core.route(core.router.receive(session.peer, pattern))
        session.take_up(subscriptions)

    def _check_quota(self, session: Session, requests: Sequence[Subscribe]) -> None:
        """Refuse subscriptions beyond the principal's limit for all its sessions. Durable ones are
        counted by themselves as well, as they exist without a session.
        """
        here, limiter = self._core.durability.here, session.limiter
        principal = session.principal
        most = principal.limits.subscriptions or self._core.settings.max_subscriptions
        more, kept = limiter.subscriptions + len(requests) - most, 0
        if requests[0].durable:  # which comes alone
            durable = here.get(f"{session.owner}/{requests[0].durable}")
            if durable is None:
                kept = 1 + self._core.durability.owned[session.owner]
            else:  # it only changes its session
                more -= sum(each.limiter is limiter for each in durable.consumers)
        is_too_much = more > 0 and not self._peers.end_disconnected(limiter, subscriptions=more)
        if is_too_much or kept > most:
            raise LimitExceeded(
                f"the number of subscriptions of {principal.name!r} at this broker",
                limit="MAX_SUBSCRIPTIONS",
                maximum=most,
                remedy="end one, or have a grant with more (limits.subscriptions)",
            )

    def _check_cost(
        self, session: Session, asked: Mapping[int, Subscription], *, subject: str = ""
    ) -> None:
        """Refuse subscriptions whose residuals, with all others of the principal, are too costly.
        `subject` is a durable one, whose cost may now count for another session of the principal.
        """
        cost = sum(each.cost for each in asked.values())
        if not cost:
            return
        limiter, mine = session.limiter, session.subscriptions
        gone = sum(mine[key].cost for key in asked if key in mine)
        moved = self._core.durability.here.get(subject)
        for before, consumer in () if moved is None else moved.consumers.items():
            if before.link is not None and before.limiter is limiter and before is not session:
                gone += before.subscriptions[consumer.key].cost
        more = limiter.cost - gone + cost - MAX_PRINCIPAL_COST
        if more > 0 and not self._peers.end_disconnected(limiter, cost=more):
            raise LimitExceeded(
                f"the cost of the residual conditions of {session.principal.name!r}",
                limit="MAX_PRINCIPAL_COST",
                maximum=MAX_PRINCIPAL_COST,
                remedy="end one",
            )

    def _subscribe_durable(
        self, session: Session, request: Subscribe, what: Filter | Pattern, narrowed: Filter
    ) -> None:
        """Make or resume a durable subscription; answered when it is on the disk."""
        core, durability, values = self._core, self._core.durability, dict(request.values)
        name = check_name(request.durable, "a durable subscription")
        if session.owner == HISTORY_OWNER:
            raise NotPermitted(
                f"durable subscriptions of {HISTORY_OWNER!r} keep the histories of brokers; "
                "connect under another name"
            )
        lease_s = check_seconds(request.lease_s, "lease_s") or core.settings.lease_s
        if not core.settings.has_disk:
            raise NotStored(NO_DISK)
        subject = f"{session.owner}/{name}"
        session_epoch = SessionEpoch(session.publisher, request.session_epoch)
        self._check_home(subject, is_group=request.group)
        before = durability.newest(subject)
        has_lapsed = before is not None and before.is_lapsed
        durable = Durable(subject, session.owner, narrowed, values, lease_s)
        if request.order_by and not request.group:
            raise InvalidInput("order_by= orders the events of a group; subscribe with group=True")
        policy = Policy(
            *(request.ack_timeout_s, request.max_attempts, request.group, request.order_by)
        )
        group = durability.here.get(subject)
        if (
            group is not None
            and _is_open(group)
            and request.group
            and durability.lives_here(subject)
        ):
            self._join(session, request, group, str(durable.bound), policy)
            session.take_up({request.key: Subscription(what, values, durable=subject)})
            return
        now_us, text = core.at.wall_us, str(durable.bound)
        asked = Claim(subject, 0, core.name, *session_epoch, claimed_us=now_us, filter=text)
        gaps, backlog = [""] if has_lapsed else [], list[Place]()
        if request.since_us and (before is None or before.is_over):
            backlog = durability.history.begin(asked, durable.bound, request.since_us)
            gaps += filter(None, [durability.history.gap(request.since_us)])
        callbacks = Callbacks(
            partial(self._subscribed, session, request, durable, gaps),
            partial(self._not_subscribed, session, request, durable),
        )
        record = durability.record(durable)
        actions = durability.events.open(core.at.now, asked, record, callbacks, backlog)
        former = durability.here.get(subject)
        if former is not None:
            self._consumers.evict(former)
            durable.deliveries = former.deliveries
            del durability.here[subject]
            durability.owned[durable.owner] -= 1
        durability.enter(durable)
        bookmark = durability.bookmarks.get(subject)
        if bookmark and before is not None and not before.is_over:
            session.send(core.out, Bookmarked(request.key, bookmark))
        durable.session_epoch = session_epoch
        durable.deliveries.policy = policy
        self._consumers.attach(durable, session, request.key)
        self._update_router(durable.peer, routing.Subscribe(0, narrowed, values))
        session.take_up({request.key: Subscription(what, values, durable=subject)})
        core.perform(actions)

    def _defer(self, session: Session, request: ClientRequest) -> None:
        """Defer a durable request until the broker, which has just started, accepts it. Later
        requests of the session wait behind it, to keep their order.
        """
        session.is_waiting = True
        self._core.catch_up.when_ready(partial(self._serve_deferred, session, request))

    def _serve_deferred(self, session: Session, request: ClientRequest) -> None:
        session.is_waiting = False
        if self._core.sessions.get(session.id) is not session:
            return
        is_ready = self._core.durability.events.is_ready
        if isinstance(request, Subscribe) and request.durable and not is_ready:
            session.send(self._core.out, Failed(request.id, _not_stored(UNREADY)))
        else:
            self.serve(session, request)

    def _join(
        self, session: Session, request: Subscribe, group: Durable, filter: str, policy: Policy
    ) -> None:
        """Add a consumer to a group; answered when the group is on the disk."""
        core, consumers = self._core, self._consumers
        if str(group.bound) != filter:
            raise InvalidInput(
                f"the consumers of the group {group.subject!r} share one filter, "
                f"{str(group.bound)!r:.200}; subscribe with that, or under another name"
            )
        if group.deliveries.policy.order_by != policy.order_by:
            raise InvalidInput(
                f"the consumers of the group {group.subject!r} share one order_by=, "
                f"{group.deliveries.policy.order_by!r}; subscribe with that, or under another name"
            )
        for other in list(group.consumers):
            if other.publisher == session.publisher:  # an earlier session of this process
                consumers.release(group, other)
        group.deliveries.policy = policy
        consumers.attach(group, session, request.key)

        def done() -> None:
            session.send(core.out, Done(request.id))
            consumers.pump(group)

        def failed(reason: str) -> None:
            consumers.release(group, session)
            session.send(core.out, Failed(request.id, _not_stored(reason)))

        core.append((), done, failed)

    def _check_home(self, subject: str, *, is_group: bool) -> None:
        """Refuse to take over a subscription whose events this broker may not receive: other
        brokers would refuse its claim.
        """
        cluster_state = self._core.durability.cluster_state
        claim = self._core.durability.newest(subject)
        if claim is None or claim.is_over or claim.home == self._core.name:
            return
        if is_group and cluster_state.next_hop(claim.home) is not None:
            address = self._core.address_book.of(claim.home)
            raise GroupElsewhere(subject, broker=claim.home, url=str(address or ""))
        if not cluster_state.may_receive(self._core.name, claim.filter):
            raise NotPermitted(
                f"the home of {subject} is {claim.home!r}, and this broker may not receive all "
                "that it asks for; connect to one that may"
            )

    def _subscribed(
        self, session: Session, request: Subscribe, durable: Durable, gaps: Sequence[str]
    ) -> None:
        """Answer once a durable subscription is on the disk. Gaps report a backlog that is lost, as
        its lease had expired, and a history that begins too late.
        """
        session.send(self._core.out, Done(request.id))
        for reason in gaps:
            gap = Gap("*", 0, 0, 0, request.key, reason=reason)
            session.send(self._core.out, Gaps((gap,)))
        self._consumers.pump(durable)

    def _not_subscribed(
        self, session: Session, request: Subscribe, durable: Durable, reason: str
    ) -> None:
        """Undo a durable subscription that could not be written: a new one does not exist, and
        another one stays at its former home.
        """
        core = self._core
        if core.durability.here.get(durable.subject) is durable:  # else another session has it
            self._consumers.release(durable, session)
            core.durability.history.forget(durable.subject)
            core.durability.restore(durable.subject, core.settings.lease_s, core.at.now)
        session.send(core.out, Failed(request.id, _not_stored(reason)))

    def _unsubscribe(self, session: Session, request: Unsubscribe) -> None:
        """End a subscription. A durable one is deleted only with `forget`, once that is on the
        disk; if it cannot be written the subscription stays.
        """
        core, subscription = self._core, session.subscriptions.get(request.key)
        if subscription is None and request.forget:
            raise SubscriptionEnded(
                "this subscription has ended already; if it is durable it may wait for its owner "
                "still: subscribe to it again, and forget it then"
            )
        self._cancelling.end(session, (request.key,), forget=False)
        if subscription is None or not subscription.durable or not request.forget:
            return
        core.end_durable(
            subscription.durable,
            Callbacks(
                lambda: session.send(core.out, Done(request.id)),
                lambda reason: session.send(core.out, Failed(request.id, _not_stored(reason))),
            ),
        )

    def _change(self, session: Session, request: Replace | Update) -> None:
        """Change the filter or values under a key, all of them or none."""
        id, key = request.id, request.key
        subscription = self._subscription(session, key)
        if isinstance(request, Replace):
            what, values, assembled = parse(request.filter), request.values, request.assembled
        else:
            unknown = sorted(set(request.values) - subscription.what.variables)
            if unknown:
                raise InvalidBinding(
                    f"the filter of key {key} has no parameter :{unknown[0]}", name=unknown[0]
                )
            what, values = subscription.what, {**subscription.values, **request.values}
            assembled = subscription.assembled
        self._check_cost(session, {key: Subscription(what, values)})
        group = self._core.durability.here.get(subscription.durable)
        if group is not None and len(group.consumers) > 1:
            raise NotSupported(
                f"the group {group.subject!r} has several consumers, which share one filter; "
                "change it while there is one"
            )
        if assembled:
            self._assemble(session, key, what, values)
        else:
            self._update(session, id, key, what, values)

    def _update(
        self, session: Session, id: int, key: int, what: Filter | Pattern, values: Bindings
    ) -> None:
        """Change the filter or values of a subscription that the client assembles."""
        core, subscription = self._core, self._subscription(session, key)
        own = {name: value for name, value in values.items() if name in what.variables}
        filter = Subscription(what, own).filter
        narrowed = narrow(filter, own, session.principal)
        subscription.version += 1
        bound = {name: own[name] for name in narrowed.variables}  # grants may leave some out
        if what == subscription.what and bound:
            update: routing.Request = routing.Update(key, bound, subscription.version)
        else:
            update = routing.Subscribe(key, narrowed, own)
            subscription.version = 0
        actions: Sequence[Action] = ()
        if subscription.durable:
            actions = self._update_durable(session, id, key, narrowed, own)
            if isinstance(update, routing.Update):
                update = routing.Update(0, update.values, subscription.version)
            else:
                update = routing.Subscribe(0, narrowed, own)
            self._update_router(core.durability.here[subscription.durable].peer, update)
        else:
            if subscription.assembled:
                core.route(core.router.receive(session.peer, UnsubscribePattern(key)))
            self._update_router(session.peer, update)
        session.change(key, what, own)
        subscription.assembled = False
        core.perform(actions)

    def _assemble(
        self, session: Session, key: int, what: Filter | Pattern, values: Bindings
    ) -> None:
        """Replace a subscription by a pattern that brokers assemble; its matching starts over."""
        core, subscription = self._core, self._subscription(session, key)
        if subscription.durable:
            raise InvalidInput(NO_DURABLE)
        pattern = core.assembling.request(key, what, values, session.principal)
        if not subscription.assembled:
            core.assembling.check_room(session.peer, 1)
            self._update_router(session.peer, routing.Unsubscribe(key))
        core.route(core.router.receive(session.peer, pattern))
        session.change(key, what, values)
        subscription.version, subscription.assembled = 0, True

    def _update_durable(
        self, session: Session, id: int, key: int, narrowed: Filter, values: Bindings
    ) -> Sequence[Action]:
        """Write a change; answered when it is on the disk, undone if it cannot be written."""
        core, subscription = self._core, session.subscriptions[key]
        subject, before = subscription.durable, (subscription.what, subscription.values)
        if not core.durability.lives_here(subject):
            raise SubscriptionEnded(f"{subject} is not at this broker any more; subscribe again")
        durable = core.durability.here[subject]
        was = durable.filter, durable.values
        durable.filter, durable.values = narrowed, dict(values)
        pending = _PendingUpdate(session, id, key, subscription, before, durable, was, narrowed)
        callbacks = Callbacks(partial(self._updated, pending), partial(self._not_updated, pending))
        record = core.durability.record(durable)
        return core.durability.events.change(core.at.now, record, str(durable.bound), callbacks)

    def _updated(self, pending: _PendingUpdate) -> None:
        """Answer once a change of a durable subscription is on the disk."""
        pending.session.send(self._core.out, Done(pending.id))

    def _not_updated(self, pending: _PendingUpdate, reason: str) -> None:
        """Undo a change that could not be written, unless a later one has replaced it."""
        core, session, subscription = self._core, pending.session, pending.subscription
        durable = pending.durable
        session.send(core.out, Failed(pending.id, _not_stored(reason)))
        is_same = session.subscriptions.get(pending.key) is subscription
        if is_same and session in durable.consumers and durable.filter is pending.narrowed:
            filter, values = pending.narrowed_before
            session.change(pending.key, *pending.before)
            durable.filter, durable.values = filter, dict(values)
            self._update_router(durable.peer, routing.Subscribe(0, filter, values))
            subscription.version = 0

    def _subscription(self, session: Session, key: int) -> Subscription:
        subscription = session.subscriptions.get(key)
        if subscription is None:
            raise Closed(f"there is no subscription with key {key}, or none any longer")
        return subscription

    def _update_router(self, peer: Peer, *requests: routing.Request) -> None:
        self._core.route(self._core.router.receive(peer, routing.Batch(requests)))


def _is_open(durable: Durable) -> bool:
    """Return whether a durable subscription is a group that others may join."""
    return bool(durable.consumers) and durable.deliveries.policy.is_group


def _not_stored(reason: str) -> Failure:
    return failure(NotStored(f"the broker could not write to its disk: {reason}"))
