"""Content-based access control: grants are filters of the events to publish and to receive.

Rules, enforced at the edge for clients and at every hop for brokers:

1. Default deny: an event that no grant admits is refused.
2. Deny wins: an event that a deny filter matches is refused, whatever is granted.
3. A subscription is *narrowed*: the broker runs it ANDed with the receive grant. Its parameters
   stay, and none of their values can widen it beyond the grant.
4. An event is published if the publisher's grant matches it. A batch is checked row by row.
5. A neighbour is a principal like any other: its receive grant limits the events sent to it, and
   its publish grant those accepted from it, whatever its clients subscribe to.

An event is not denied where a condition of the deny filter is unknown: one without `secret` is not
denied by `secret = true`. Residual conditions (`LENGTH(name) > 3`) are the exception. A narrowed
filter excludes events for which one is unknown, and an event is denied if one is unknown because a
text may be too long to compute with.
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
    """Quotas of a principal at a broker; None for the broker's own limits."""

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
                names = ", ".join(cls.__dataclass_fields__)
                raise InvalidInput(f"{name!r:.40} is no limit; there are {names}")
        numbers: dict[str, Any] = dict(given)
        cls(**numbers)  # checks the range first: int() fails on infinity
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
"""The principal of clients without credentials. No authenticated one may have this name."""

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
    "brokers know each other by keys: palio keys create NAME, palio token create NAME --broker-key "
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
    """True if it may query others' sessions, subscriptions and counts."""
    may_operate: bool = False
    """True if it may change the network: add, remove, drain and retire brokers, apply plans. Other
    brokers act on a broker's facts about these only if that broker may operate."""
    identities: frozenset[str] = frozenset()
    """Names it may act under, besides its own."""
    key: str = ""
    """The public key that a broker's token is bound to: its bearer must prove to have the private
    key. A principal without one cannot be a broker."""
    expires_us: int | None = None
    """By the wall clock; None for never."""
    token: str = ""
    """The number of the token of this principal, by which it may be revoked."""

    def __post_init__(self) -> None:
        check_name(self.name, "a principal")
        for identity in self.identities:
            check_name(identity, "an identity")
        for grant in ("allow_publish", "allow_subscribe", "deny_publish", "deny_subscribe"):
            variables = getattr(self, grant).variables
            if variables:
                raise InvalidFilter(
                    f"{grant} of {self.name!r} has the parameter :{min(variables)}; "
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
        """True if it may receive any event."""
        return self.allow_subscribe == TRUE and self.deny_subscribe == FALSE

    @cached_property
    def publishes_all(self) -> bool:
        """True if it may publish anything."""
        return self.allow_publish == TRUE and self.deny_publish == FALSE

    @cached_property
    def publishes(self) -> Filter:
        """The filter of the events it may publish, denials excluded."""
        publisher = Principal(
            self.name, allow_subscribe=self.allow_publish, deny_subscribe=self.deny_publish
        )
        try:
            return narrow(TRUE, NO_VALUES, publisher)
        except NotPermitted:
            return FALSE

    @property
    def receives_something(self) -> bool:
        """True unless the grant alone shows that it may receive no event."""
        return self.allow_subscribe != FALSE and self.deny_subscribe != TRUE

    @property
    def publishes_something(self) -> bool:
        """True unless the grant alone shows that it may publish no event."""
        return self.allow_publish != FALSE and self.deny_publish != TRUE

    @property
    def grants(self) -> tuple[Filter, ...]:
        """Its filters, to compare grants apart from name and expiry."""
        return (self.allow_publish, self.allow_subscribe, self.deny_publish, self.deny_subscribe)

    def check_identity(self, identity: str) -> None:
        """Refuse to let it act under a name that is neither its own nor granted to it."""
        if identity != self.name and identity not in self.identities:
            raise NotPermitted(
                f"{self.name!r} may not act as {identity!r}: {NO_IDENTITY}, since this allows to "
                "withdraw the identity's advertisements and to cancel its subscriptions"
            )

    def check_monitor(self, purpose: str) -> None:
        """Refuse a query about others without the grant to monitor."""
        if not self.may_monitor:
            raise NotPermitted(f"{self.name!r} may not query {purpose}: {NO_MONITOR}")

    def check_operate(self, action: str) -> None:
        """Refuse a change of the network without the grant to operate."""
        if not self.may_operate:
            raise NotPermitted(f"{self.name!r} may not {action}: {NO_OPERATE}")

    def check_broker(self) -> None:
        """Refuse a link without the grant to be a broker."""
        if not self.key:
            raise NotAuthenticated(f"{self.name!r} may not be a broker; {NO_BROKER}")

    def check_client(self) -> None:
        """Refuse a client with a broker's token, which is no secret: other brokers have seen it."""
        if self.key:
            raise NotAuthenticated(
                f"the token of the broker {self.name!r} is bound to its key, and no client's; "
                "sign one without --broker-key"
            )

    def check(self, at: Moment) -> None:
        """Refuse a principal that has expired."""
        if self.expires_us is not None and at.wall_us >= self.expires_us:
            raise NotAuthenticated(f"the credential of {self.name!r} has expired; renew it")


class Authority(Protocol):
    """Authenticates clients and brokers, and knows their grants."""

    def authenticate(self, token: str, transport_name: str, at: Moment) -> Principal:
        """Return the principal of a token or of a transport name (a certificate's subject).

        Raise `NotAuthenticated` if neither is valid, and for a broker's token.
        """

    def authenticate_broker(self, token: str, at: Moment) -> Principal:
        """Return the broker of a token; raise `NotAuthenticated` without that grant.

        If it has a `key`, the caller must demand a signature and check it with `verified`.
        """

    def vouched(self, token: str, at: Moment) -> Principal:
        """Return the broker that a token names, even if the token has expired. Raise
        `NotAuthenticated` if its issuer is not trusted any more.
        """

    def verified(self, token: str, data: bytes, signature: bytes, at: Moment) -> Principal:
        """Return the broker of `vouched`, if `signature` is by the key in its token."""

    def check(self, principal: Principal, at: Moment) -> None:
        """Refuse (`NotAuthenticated`) a principal that has expired or was revoked meanwhile."""


class OpenAuthority:
    """Grants everything to everyone: for brokers that only listen on loopback.

    >>> print(OpenAuthority().authenticate("", "", Moment(0.0, 0)).allow_subscribe)
    TRUE
    """

    def __init__(self) -> None:
        self._anyone = Principal(ANYONE, TRUE, TRUE, may_monitor=True, may_operate=True)

    def authenticate(self, token: str, transport_name: str, at: Moment) -> Principal:  # noqa: ARG002  # whatever it is
        """Return a principal that may do everything."""
        return self._anyone

    def authenticate_broker(self, token: str, at: Moment) -> Principal:  # noqa: ARG002  # whatever it is
        """Accept every broker."""
        return self._anyone

    def vouched(self, token: str, at: Moment) -> Principal:  # noqa: ARG002  # whatever it is
        """Accept every broker."""
        return self._anyone

    def verified(self, token: str, data: bytes, signature: bytes, at: Moment) -> Principal:  # noqa: ARG002  # whatever it is
        """Accept data without checking its signature."""
        return self._anyone

    def check(self, principal: Principal, at: Moment) -> None:
        """Accept: nothing expires here."""


class NamedAuthority:
    """Authenticates clients by the name that the transport has proven (a certificate's subject).

    >>> clients = NamedAuthority({"ann": Principal("ann", TRUE, TRUE)})
    >>> clients.authenticate("", "ann", Moment(0.0, 0)).name
    'ann'
    """

    def __init__(self, principals: Mapping[str, Principal]) -> None:
        self._principals = dict(principals)

    def authenticate(self, token: str, transport_name: str, at: Moment) -> Principal:  # noqa: ARG002  # certificates only
        """Return the principal of a certificate's subject."""
        principal = self._principals.get(transport_name)
        if principal is None:
            problem = (
                f"{transport_name!r} was granted nothing" if transport_name else "no certificate"
            )
            raise NotAuthenticated(
                f"{problem}; show a client certificate whose subject is in [auth.grants] (HTTP "
                "asks for none: it needs tokens, auth.keys)"
            )
        principal.check(at)
        return principal

    def authenticate_broker(self, token: str, at: Moment) -> Principal:  # noqa: ARG002  # whatever it is
        """Refuse all brokers: their names come from tokens."""
        raise NotAuthenticated(f"a certificate makes no broker; {NO_BROKER}")

    def vouched(self, token: str, at: Moment) -> Principal:
        """Refuse all brokers: their names come from tokens."""
        return self.authenticate_broker(token, at)

    def verified(self, token: str, data: bytes, signature: bytes, at: Moment) -> Principal:  # noqa: ARG002  # whatever it is
        """Refuse all signed data, as no broker has a key."""
        return self.vouched(token, at)

    def check(self, principal: Principal, at: Moment) -> None:
        """Refuse a principal that expired, or that is no longer listed."""
        principal.check(at)
        if self._principals.get(principal.name) != principal:
            raise NotAuthenticated(f"{principal.name!r} is no longer listed")


# --- subscriptions ---


def narrow(filter: Filter, values: Bindings, principal: Principal) -> Filter:
    """Return the part of a filter that a principal may receive, for the broker to run.

    Raise `NotPermitted` if nothing is left whatever values its parameters take.

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
        for conjunction in permitted:
            for rest in _less(conjunction, denied):
                size.add(rest)
                left.append(rest)
    if not left and filter.conjunctions:
        but = "" if denied == FALSE else f" but not {_shown(denied)}"
        raise NotPermitted(
            f"{principal.name!r} may receive nothing that matches {_shown(filter)}; "
            f"it may receive {_shown(may)}{but}"
        )
    narrowed = Filter.of(left)
    narrowed.bind(values)  # brokers exchange the bound filter, which must be within the limits
    return narrowed


def check_advertisement(advertisement: Advertisement, principal: Principal) -> None:
    """Refuse an advertisement of events of which the principal may publish none."""
    if not overlaps(advertisement, principal.allow_publish):
        raise NotPermitted(
            f"{principal.name!r} may publish nothing that {_shown(advertisement)} announces; "
            f"it may publish {_shown(principal.allow_publish)}"
        )


def _fixed(conjunction: Conjunction) -> Conjunction:
    """Return the part of a filter that holds whatever values the parameters take."""
    if not conjunction.variables:
        return conjunction
    return Conjunction.of(part for part in conjunction.parts if not part.variables)


def _possible(filter: Filter) -> list[Conjunction]:
    """Return the alternatives that can match, for some event and some parameter values."""
    return [
        conjunction
        for conjunction in filter.conjunctions
        if not _fixed(conjunction).is_contradiction
    ]


def _less(permitted: Conjunction, denied: Filter) -> list[Conjunction]:
    """Return an alternative without the events that `denied` matches."""
    fixed = _fixed(permitted)
    met = [conjunction for conjunction in denied.conjunctions if _meet(conjunction, fixed)]
    if not met:
        return [permitted]
    if any(conjunction.covers(fixed) for conjunction in met):
        return []
    return _possible(Filter((permitted,)) & reduce(All(tuple(map(_fails, met)))))


def _meet(one: Conjunction, other: Conjunction) -> bool:
    """Return whether their constraints, attribute by attribute, may hold of one event."""
    mine, theirs = one.domains, other.domains
    return not any(mine[name].disjoint(theirs[name]) for name in mine.keys() & theirs.keys())


def _fails(conjunction: Conjunction) -> Boolean:
    """Return the condition that a conjunction is not true: false, or unknown except residuals."""
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
    """Return the events that a principal may publish.

    >>> import palio
    >>> from palio.model import to_batches
    >>> ticker = Principal("ticker", allow_publish=palio.parse("price > 0"))
    >>> (batch,) = to_batches([{"price": 5}, {"price": -5}, {"volume": 1}])
    >>> publishable(ticker, Parcel("ticker", batch))
    array([ True, False, False])
    """
    return principal._publishing.admitted(parcel)


def receivable(principal: Principal, parcel: Parcel) -> RowMask:
    """Return the events that a principal may receive: neighbours' filters are not narrowed."""
    return principal._hearing.admitted(parcel)


def _drop_job(_job: object) -> None:
    """Drop a job: grants use compiled code if it exists, and do not wait for it."""


class _Strict(Foreign):
    """A residual of a denial that is also true if it is unknown for texts that may have become too
    long: each step of it makes a text less than three times as long.
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
        truth = self._residual.truth(event)
        if truth is not None:
            return truth
        values = [event.get(name) for name in self.attributes]
        chars = sum(len(value) for value in values if isinstance(value, str | bytes))
        return True if chars * self.cost > MAX_COMPUTED_CHARS else None

    def inverted(self) -> _Strict:
        return _Strict(self._residual.inverted())


def _strict(denied: Filter) -> Filter:
    """Return a denial that no event can evade by the length of its texts."""
    return Filter(
        tuple(
            Conjunction(
                conjunction.constraints,
                tuple(Residual(_Strict(one)) for one in conjunction.residuals),
            )
            for conjunction in denied.conjunctions
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
            self._index = Index(_drop_job)
            self._index.add(self._MAY, may)
            self._index.add(self._DENIED, _strict(denied))

    def admitted(self, parcel: Parcel) -> RowMask:
        if self._index is None:
            return np.ones(len(parcel), np.bool_)
        matches = routed(self._index, parcel)
        admitted = matches.get(self._MAY)
        if admitted is None:
            return np.zeros(len(parcel), np.bool_)
        denied = matches.get(self._DENIED)
        return admitted if denied is None else admitted & ~denied
