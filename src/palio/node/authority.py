"""Authority is content: what a principal may publish and receive are filters.

Rules, kept at the edge for clients and at every hop for brokers:

1. Default deny: what no grant admits is refused.
2. Deny wins: an event that a deny filter matches is refused, whatever grants say.
3. A subscription is *narrowed*: the broker runs it ANDed with what the principal may receive. Its
   parameters stay, and no value of theirs widens it again.
4. An event is published if the publisher's grant matches it. Of a batch the rows count one by one.
5. A neighbour is a principal like any other: it is sent what it may receive, and what it brings is
   taken if it may publish it. What it says its clients want makes no difference to that.

Where a condition of a deny filter is unknown, the event is not denied, as an event without `secret`
is not by `secret = true`. Residual conditions (`LENGTH(name) > 3`) are the exception: the narrowed
filter leaves out events for which one is unknown, and an event is denied for which one is unknown
because a text may be too long to compute with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any, Final, Protocol

import numpy as np

from palio.errors import InvalidFilter, InvalidInput, NotAuthenticated, NotPermitted
from palio.language.twovalued import not_true
from palio.matching.index import Index
from palio.matching.protocol import RowMask
from palio.model.advertisements import Advertisement
from palio.model.constraints import Constraint, Residual
from palio.model.expressions import All, AnyOf, Boolean, Foreign, Not
from palio.model.filters import FALSE, TRUE, Conjunction, Filter, reduce
from palio.model.limits import MAX_COMPUTED_CHARS
from palio.model.parcels import Parcel
from palio.model.relations import overlaps
from palio.model.sizes import Meter
from palio.model.values import NO_VALUES, Bindings
from palio.node.effects import Moment
from palio.protocol.names import check_name
from palio.routing.protocol import routed

_SHOWN_CHARS: Final = 200
"""Characters of a filter that an error shows."""


@dataclass(frozen=True)
class Limits:
    """How much a principal may ask of a broker; None for as much as the broker has."""

    sessions: int | None = None
    subscriptions: int | None = None
    events_per_s: float | None = None
    bytes_per_s: float | None = None

    @classmethod
    def of(cls, given: Mapping[str, float]) -> Limits:
        """Read limits from a token or a setting.

        >>> Limits.of({"sessions": 10.0}).sessions
        10
        """
        if not given:
            return NO_LIMITS
        for name in given:
            if name not in cls.__dataclass_fields__:
                known = ", ".join(cls.__dataclass_fields__)
                raise InvalidInput(f"{name!r:.40} is no limit; there are {known}")
        numbers: dict[str, Any] = dict(given)
        cls(**numbers)  # before they are made whole, which infinity cannot be
        for name in {"sessions", "subscriptions"} & numbers.keys():
            numbers[name] = int(numbers[name])
        return cls(**numbers)

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if value is not None and not 0 < value < inf:
                raise InvalidInput(
                    f"the limit {name} is {value}; it is a number above 0, or left out"
                )


NO_LIMITS: Final = Limits()

ANYONE: Final = "anyone"
"""The principal of those who need not show who they are; no one who does is called so."""

NO_MONITOR: Final = (
    "what concerns others needs the grant `monitor` (palio token create --monitor, or "
    "monitor = true in [auth.grants.NAME])"
)
"""The permission that is missing, and how it is granted."""

NO_OPERATE: Final = (
    "to change the network needs the grant `operate` (palio token create --operate, or "
    "operate = true in [auth.grants.NAME])"
)
"""The permission that is missing, and how it is granted."""

NO_IDENTITY: Final = (
    "to act under another name than its own is a grant (palio token create --identity NAME, or "
    "identities in [auth.grants.NAME])"
)
"""The permission that is missing, and how it is granted."""

NO_BROKER: Final = (
    "brokers know each other by keys: palio keys create NAME, palio token create NAME --broker "
    "NAME.pub, and there auth.keys, auth.token_file and auth.broker_key"
)
"""The permission that is missing, and how it is granted."""


@dataclass(frozen=True)
class Principal:
    """A client or broker, and what is granted to it. By default: nothing.

    >>> import palio
    >>> alice = Principal("alice", allow_subscribe=palio.parse("symbol = 'IBM'"))
    >>> print(narrow(palio.parse("price < :limit"), {"limit": 10}, alice))
    price < :limit AND symbol = 'IBM'
    """

    name: str
    allow_publish: Filter = FALSE
    allow_subscribe: Filter = FALSE
    deny_publish: Filter = FALSE
    deny_subscribe: Filter = FALSE
    limits: Limits = NO_LIMITS
    may_monitor: bool = False
    """True if it is told about others: who they are, what they receive, how much there is of it."""
    may_operate: bool = False
    """True if it may change the network: add, remove, drain and retire brokers, apply plans. Of a
    broker, whether others act on its word that one is retired or a plan applies."""
    identities: frozenset[str] = frozenset()
    """Under which names it may act besides its own."""
    key: str = ""
    """The public key of a broker, that its token is bound to: whoever shows it proves to have the
    private one. Nobody else may be a broker."""
    expires_us: int | None = None
    """By the clock of the wall; None for never."""
    token: str = ""
    """The number of the token that showed who it is, by which it may be revoked."""

    def __post_init__(self) -> None:
        check_name(self.name, "a principal")
        for identity in self.identities:
            check_name(identity, "an identity")
        for what in ("allow_publish", "allow_subscribe", "deny_publish", "deny_subscribe"):
            variables = getattr(self, what).variables
            if variables:
                raise InvalidFilter(
                    f"{what} of {self.name!r} has the parameter :{min(variables)}; "
                    "a grant is fixed: write a constant"
                )

    @cached_property
    def _publishing(self) -> _Rows:
        return _Rows(self.allow_publish, self.deny_publish)

    @cached_property
    def _hearing(self) -> _Rows:
        return _Rows(self.allow_subscribe, self.deny_subscribe)

    @cached_property
    def may_receive_all(self) -> bool:
        """True if nothing is withheld from it."""
        return self.allow_subscribe == TRUE and self.deny_subscribe == FALSE

    @cached_property
    def publishes_all(self) -> bool:
        """True if it may publish anything."""
        return self.allow_publish == TRUE and self.deny_publish == FALSE

    @cached_property
    def publishes(self) -> Filter:
        """The filter of what it may publish, denials taken out."""
        publisher = Principal(
            self.name, allow_subscribe=self.allow_publish, deny_subscribe=self.deny_publish
        )
        try:
            return narrow(TRUE, NO_VALUES, publisher)
        except NotPermitted:
            return FALSE

    @property
    def receives_something(self) -> bool:
        """True if not all is withheld from it, as far as can be told from its grant alone."""
        return self.allow_subscribe != FALSE and self.deny_subscribe != TRUE

    @property
    def publishes_something(self) -> bool:
        """True if it may publish any event, as far as can be told from its grant alone."""
        return self.allow_publish != FALSE and self.deny_publish != TRUE

    @property
    def grants(self) -> tuple[Filter, ...]:
        """Its permissions, apart from its name and their time."""
        return (self.allow_publish, self.allow_subscribe, self.deny_publish, self.deny_subscribe)

    def check_identity(self, identity: str) -> None:
        """Refuse to let it act under a name that is neither its own nor granted to it."""
        if identity != self.name and identity not in self.identities:
            raise NotPermitted(
                f"{self.name!r} may not act as {identity!r}: {NO_IDENTITY}, since whoever acts "
                "under an identity may withdraw what it advertises and cancel what it hears"
            )

    def check_monitor(self, what: str) -> None:
        """Refuse to tell about others whoever was not granted that."""
        if not self.may_monitor:
            raise NotPermitted(f"{self.name!r} may not be told {what}: {NO_MONITOR}")

    def check_operate(self, what: str) -> None:
        """Refuse to change the network for whoever was not granted that."""
        if not self.may_operate:
            raise NotPermitted(f"{self.name!r} may not {what}: {NO_OPERATE}")

    def check_broker(self) -> None:
        """Refuse to link with whoever was not granted to be a broker."""
        if not self.key:
            raise NotAuthenticated(f"{self.name!r} may not be a broker; {NO_BROKER}")

    def check_client(self) -> None:
        """Refuse a client that shows a broker's token, which everybody may have seen."""
        if self.key:
            raise NotAuthenticated(
                f"the token of the broker {self.name!r} is bound to its key, and no client's; "
                "sign one without --broker"
            )

    def check(self, at: Moment) -> None:
        """Refuse a principal whose time is over."""
        if self.expires_us is not None and at.wall_us >= self.expires_us:
            raise NotAuthenticated(f"what showed that this is {self.name!r} has expired; renew it")


class Authority(Protocol):
    """Says who connects, and what they were granted."""

    def authenticate(self, token: str, transport_name: str, at: Moment) -> Principal:
        """Return the principal, by a token or by what the transport has shown (a certificate's
        subject).

        `NotAuthenticated` if neither shows anything, and for a token that is a broker's.
        """

    def authenticate_broker(self, token: str, at: Moment) -> Principal:
        """Which broker this is, by a token: `NotAuthenticated` without that grant.

        If it has a `key`, whoever asks lets it prove that by something that is `verified`.
        """

    def vouched(self, token: str, at: Moment) -> Principal:
        """The broker that a token names; `NotAuthenticated` if nobody vouches for it any more. The
        time of the token is not looked at.
        """

    def verified(self, token: str, data: bytes, signature: bytes, at: Moment) -> Principal:
        """The same, if this is a signature by the key that the token is bound to."""

    def check(self, principal: Principal, at: Moment) -> None:
        """Refuse (`NotAuthenticated`) a principal that has expired or was revoked meanwhile."""


class OpenAuthority:
    """Everyone may do everything: for brokers that only listen on loopback.

    >>> print(OpenAuthority().authenticate("", "", Moment(0.0, 0)).allow_subscribe)
    TRUE
    """

    def __init__(self) -> None:
        self._anyone = Principal(ANYONE, TRUE, TRUE, may_monitor=True, may_operate=True)

    def authenticate(self, token: str, transport_name: str, at: Moment) -> Principal:  # noqa: ARG002  # whatever it is
        """See `Authority`."""
        return self._anyone

    def authenticate_broker(self, token: str, at: Moment) -> Principal:  # noqa: ARG002  # whatever it is
        """See `Authority`."""
        return self._anyone

    def vouched(self, token: str, at: Moment) -> Principal:  # noqa: ARG002  # whatever it is
        """See `Authority`."""
        return self._anyone

    def verified(self, token: str, data: bytes, signature: bytes, at: Moment) -> Principal:  # noqa: ARG002  # whatever it is
        """See `Authority`."""
        return self._anyone

    def check(self, principal: Principal, at: Moment) -> None:
        """See `Authority`."""


class NamedAuthority:
    """Clients by the name that the transport has shown, such as a certificate's subject.

    >>> clients = NamedAuthority({"ann": Principal("ann", TRUE, TRUE)})
    >>> clients.authenticate("", "ann", Moment(0.0, 0)).name
    'ann'
    """

    def __init__(self, principals: Mapping[str, Principal]) -> None:
        self._principals = dict(principals)

    def authenticate(self, token: str, transport_name: str, at: Moment) -> Principal:  # noqa: ARG002  # certificates only
        """See `Authority`."""
        principal = self._principals.get(transport_name)
        if principal is None:
            who = f"{transport_name!r} was granted nothing" if transport_name else "no certificate"
            raise NotAuthenticated(
                f"{who}; show a client certificate whose subject is in [auth.grants] (HTTP "
                "asks for none: it needs tokens, auth.keys)"
            )
        principal.check(at)
        return principal

    def authenticate_broker(self, token: str, at: Moment) -> Principal:  # noqa: ARG002  # whatever it is
        """See `Authority`."""
        raise NotAuthenticated(f"a certificate makes no broker; {NO_BROKER}")

    def vouched(self, token: str, at: Moment) -> Principal:
        """See `Authority`."""
        return self.authenticate_broker(token, at)

    def verified(self, token: str, data: bytes, signature: bytes, at: Moment) -> Principal:  # noqa: ARG002  # whatever it is
        """See `Authority`."""
        return self.vouched(token, at)

    def check(self, principal: Principal, at: Moment) -> None:
        """See `Authority`."""
        principal.check(at)
        if self._principals.get(principal.name) is not principal:
            raise NotAuthenticated(f"{principal.name!r} is no longer listed")


# --- subscriptions ---


def narrow(filter: Filter, values: Bindings, principal: Principal) -> Filter:
    """Return the filter that a broker runs for a principal: never more than it may receive.

    `NotPermitted` if nothing is left whatever values its parameters take.

    >>> import palio
    >>> reader = Principal(
    ...     "reader", allow_subscribe=TRUE, deny_subscribe=palio.parse("secret = true")
    ... )
    >>> public = narrow(palio.parse("price < 5"), {}, reader)
    >>> public.matches({"price": 4}), public.matches({"price": 4, "secret": True})
    (True, False)
    """
    filter.bind(values)  # an error of the subscriber's own comes before one of authority
    if principal.may_receive_all:
        return filter
    may, denied = principal.allow_subscribe, principal.deny_subscribe
    left: list[Conjunction] = []
    size = Meter()
    for asked in filter.conjunctions if may.conjunctions else ():
        fixed = _fixed(asked)
        near = [one for one in may.conjunctions if _meet(one, fixed)]
        if fixed.is_contradiction or any(one.covers(fixed) for one in near):
            permitted = [asked]
        else:
            permitted = _possible(Filter((asked,)) & Filter(tuple(near)))
        for each in permitted:
            for rest in _less(each, denied):
                size.add(rest)
                left.append(rest)
    if not left and filter.conjunctions:
        but = "" if denied == FALSE else f" but not {_shown(denied)}"
        raise NotPermitted(
            f"{principal.name!r} may receive nothing that matches {_shown(filter)}; "
            f"it may receive {_shown(may)}{but}"
        )
    narrowed = Filter.of(left)
    narrowed.bind(values)  # what travels is the grant with the values in it
    return narrowed


def check_advertisement(advertisement: Advertisement, principal: Principal) -> None:
    """Refuse to announce events of which the principal may publish none."""
    if not overlaps(advertisement, principal.allow_publish):
        raise NotPermitted(
            f"{principal.name!r} may publish nothing that {_shown(advertisement)} announces; "
            f"it may publish {_shown(principal.allow_publish)}"
        )


def _fixed(conjunction: Conjunction) -> Conjunction:
    """Return the part of a filter that holds whatever values the parameters take."""
    if not conjunction.variables:
        return conjunction
    return Conjunction.of(each for each in conjunction.parts if not each.variables)


def _possible(filter: Filter) -> list[Conjunction]:
    """The alternatives that some values of the parameters let some event match."""
    return [each for each in filter.conjunctions if not _fixed(each).is_contradiction]


def _less(permitted: Conjunction, denied: Filter) -> list[Conjunction]:
    """Return an alternative without the events that `denied` matches."""
    fixed = _fixed(permitted)
    met = [each for each in denied.conjunctions if _meet(each, fixed)]
    if not met:
        return [permitted]
    if any(each.covers(fixed) for each in met):
        return []
    return _possible(Filter((permitted,)) & reduce(All(tuple(map(_fails, met)))))


def _meet(one: Conjunction, other: Conjunction) -> bool:
    """Return whether their constraints, attribute by attribute, may hold of one event."""
    mine, theirs = one.domains, other.domains
    return not any(mine[name].disjoint(theirs[name]) for name in mine.keys() & theirs.keys())


def _fails(conjunction: Conjunction) -> Boolean:
    """That a conjunction is not true: false or, but for residuals, unknown."""
    return AnyOf(
        tuple(
            not_true(part.name, [part.as_test()])
            if isinstance(part, Constraint)
            else Not(part.condition)
            for part in conjunction.parts
        )
    )


def _shown(filter: Filter | Advertisement) -> str:
    text = str(filter)
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "..."


# --- events ---


def publishable(principal: Principal, parcel: Parcel) -> RowMask:
    """The events that a principal may publish.

    >>> import palio
    >>> from palio.model import to_batches
    >>> ticker = Principal("ticker", allow_publish=palio.parse("price > 0"))
    >>> (batch,) = to_batches([{"price": 5}, {"price": -5}, {"volume": 1}])
    >>> publishable(ticker, Parcel("ticker", batch))
    array([ True, False, False])
    """
    return principal._publishing.admitted(parcel)


def receivable(principal: Principal, parcel: Parcel) -> RowMask:
    """The events that a principal may receive: for neighbours, whose filters are not narrowed."""
    return principal._hearing.admitted(parcel)


def _leave_it(_job: object) -> None:
    """Compiled code is used once it is there; nobody waits for it here."""


class _Strict(Foreign):
    """A residual of a denial: true as well where it is unknown, and texts that it reads may have
    become too long (a step of it makes no text three times as long).
    """

    __slots__ = ("_residual",)

    def __init__(self, residual: Residual) -> None:
        self._residual = residual

    @property
    def text(self) -> str:
        return str(self._residual)

    @property
    def attributes(self) -> frozenset[str]:
        return self._residual.attributes

    @property
    def weight(self) -> int:
        return self.cost

    @property
    def cost(self) -> int:
        return self._residual.cost

    def truth(self, event: Mapping[str, Any]) -> bool | None:
        known = self._residual.truth(event)
        if known is not None:
            return known
        read = [event.get(name) for name in self.attributes]
        chars = sum(len(each) for each in read if isinstance(each, str | bytes))
        return True if chars * self.cost > MAX_COMPUTED_CHARS else None

    def inverted(self) -> _Strict:
        return _Strict(self._residual.inverted())


def _strict(denied: Filter) -> Filter:
    """A denial that no event passes by the length of its texts."""
    return Filter(
        tuple(
            Conjunction(each.constraints, tuple(Residual(_Strict(one)) for one in each.residuals))
            for each in denied.conjunctions
        )
    )


class _Rows:
    """A grant and its denial, compiled."""

    _MAY: Final = 0
    _DENIED: Final = 1

    def __init__(self, may: Filter, denied: Filter) -> None:
        self._everything = may == TRUE
        self._index: Index | None = None
        if not self._everything or denied != FALSE:
            self._index = Index(_leave_it)
            self._index.add(self._MAY, may)
            self._index.add(self._DENIED, _strict(denied))

    def admitted(self, parcel: Parcel) -> RowMask:
        if self._index is None:
            return np.ones(len(parcel), np.bool_)
        found = routed(self._index, parcel)
        admitted = found.get(self._MAY)
        if admitted is None:
            return np.zeros(len(parcel), np.bool_)
        denied = found.get(self._DENIED)
        return admitted if denied is None else admitted & ~denied
