"""`FactVerifier`: signs a broker's own facts, and verifies the facts of others.

1. A broker signs each fact about itself. It accepts a fact of another broker only with a signature
   by the key of a token that its own authority accepts. In an open network nobody signs.
2. A token is a fact, too (`TOKEN`). It verifies itself, and precedes all other signed facts. Its
   expiry is ignored: a disconnected broker keeps its durable subscriptions.
3. All accepted numbers are bounded, versions and claims among them: none may be so far ahead of the
   wall clock that its origin could not supersede it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Final

import msgspec

from palio.errors import InvalidInput, NotAuthenticated, PalioError
from palio.language.parsing import parse_filter
from palio.model.filters import FALSE, Filter
from palio.model.relations import covers
from palio.model.values import NO_VALUES
from palio.node.authority import Authority, OpenAuthority, Principal, narrow
from palio.node.effects import Moment
from palio.node.identity import NOBODY, Identity, fact_text
from palio.node.limits import AHEAD_US, MAX_BROKERS, MAX_FACT_CHARS
from palio.protocol.limits import MAX_NAME_BYTES
from palio.protocol.messages import Fact

ADDRESS: Final = "/address"
"""The subject of the address at which others can reach a broker (`AddressBook`)."""

FOUND: Final = "/found"
"""The subject of a broker's fallback links: the peers that it dialed in place of lost ones
(`palio.node.peer_discovery`)."""

LINKS: Final = "links"
"""The subject of a broker's list of peers. Subjects of durable subscriptions contain a `/`."""

LOSS_REPORT: Final = "/lapse"
"""The subject of a report that live events may have been lost: each new version is another loss."""

LOG: Final = "/log"
"""The subject of the id of a broker's journal: another id means that the earlier journal is lost.
"""

LEAVING: Final = "/leaving"
"""The subject of a broker's announcement that it is about to stop, until it withdraws that."""

PART: Final = "/multicast"
"""The subject of a broker's participation in multicast flows (`palio.node.multicasting`)."""

PEERS: Final = "/peers"
"""The subject under which a broker keeps the addresses that it dials in addition to its
configuration (`palio.node.membership`)."""

PLAN: Final = "/plan"
"""The subject of a plan of multicast groups that a broker states (`palio.node.plans`)."""

REMOVED: Final = "/removed/"
"""The prefix of subjects that remove another broker; no owner's name is empty."""

TRAFFIC: Final = "/traffic"
"""The subject of a report of what a broker has sent lately (`palio.node.replanning`)."""

TOKEN: Final = "/token"
"""The subject of a broker's bound token."""

OF_AN_INCARNATION: Final = frozenset({LINKS, LOSS_REPORT, PART, TRAFFIC})
"""Facts about a broker's present incarnation. They are sent even if the disk refuses them, since
live events depend on them. They may be forgotten: a broker that starts publishes new ones, or
receives its old ones from others and supersedes them."""


def is_subscription(subject: str) -> bool:
    """Return whether a fact is about a durable subscription."""
    return subject != LINKS and not subject.startswith("/")


def is_live_subscription(fact: Fact) -> bool:
    """Return whether a fact claims a durable subscription for its origin, rather than ends one."""
    return is_subscription(fact.subject) and bool(fact.filter)


# The text that a broker signs to prove that it has its token's key.
_NOTHING: Final = b""

# Stands for a time at which no bound token has expired.
_ANY_TIME: Final = Moment(0.0, 0)


class FactVerifier:
    """Signs the facts of one broker, and verifies those of others."""

    def __init__(
        self, name: str, identity: Identity = NOBODY, authority: Authority | None = None
    ) -> None:
        self.name = name
        self.token = identity.token
        self._identity = identity
        self._authority = authority or OpenAuthority()
        # The token of an earlier incarnation of this broker, once a peer has sent it.
        self._earlier = self.token

    @property
    def _is_open(self) -> bool:
        return isinstance(self._authority, OpenAuthority)

    def trust(self, authority: Authority) -> None:
        """Verify by another authority from now on."""
        self._authority = authority
        self.__dict__.pop("own", None)

    def filter_signed(self, facts: Iterable[Fact]) -> list[Fact]:
        """Return the facts of the disk, without those accepted while the network was open."""
        stored = list(facts)
        if self._is_open:
            return stored
        signed = {each.origin for each in stored if each.subject == TOKEN and each.signature}
        return [
            each
            for each in stored
            if each.origin == self.name or (each.signature and each.origin in signed)
        ]

    @cached_property
    def own(self) -> Principal | None:
        """The grants of this broker; None if no authority limits them."""
        if self._is_open:
            return None
        proof = self._identity.sign(_NOTHING)
        try:
            return self._authority.verified(self.token, _NOTHING, proof, _ANY_TIME)
        except NotAuthenticated:
            return None

    def narrow_to_grant(self, fact: Fact) -> Fact:
        """Return a fact about this broker, reduced to its grant. Others would reject more, and with
        it all later facts of this broker.
        """
        own = self.own
        if own is None or not _grant_problem(fact, own):
            return fact
        if not is_subscription(fact.subject):
            return msgspec.structs.replace(fact, filter="", claimed_us=0)
        left = str(_receivable(parse_filter(fact.filter), own))
        return msgspec.structs.replace(fact, filter=left if _may_receive(own, left) else str(FALSE))

    def may_receive(self, token: Fact | None, filter: str) -> bool:
        """Return whether the broker of a token fact may receive all events that a filter matches.
        The signature was verified with the fact (`check`); the token may have been revoked since.
        """
        if self._is_open:
            return True
        if token is None or not (token.links and token.signature):
            return False
        try:
            return _may_receive(self._authority.vouched(token.links[0], _ANY_TIME), filter)
        except NotAuthenticated:
            return False

    def sign(self, fact: Fact) -> Fact:
        """Return a fact about this broker, reduced to its grant and signed."""
        if not self.token:
            return fact
        fact = self.narrow_to_grant(fact)
        return msgspec.structs.replace(fact, signature=self._identity.sign(fact_text(fact)))

    def check(self, fact: Fact, token: str, at: Moment) -> str:
        """Return why a fact is rejected; empty if it is accepted. `token` is the stored one of its
        origin.
        """
        problem = _bounds_problem(fact, at)
        if problem or self._is_open:
            return problem
        try:
            principal = self._signer(fact, token, at)
        except NotAuthenticated as error:
            return str(error)
        if principal.name != fact.origin:
            return f"it is signed by {principal.name!r}"
        return _grant_problem(fact, principal)

    def _signer(self, fact: Fact, token: str, at: Moment) -> Principal:
        text = fact_text(fact)
        if fact.subject == TOKEN:
            shown = fact.links[0] if fact.links else ""
            principal = self._verified(shown, text, fact.signature, at)
            if fact.origin == self.name:
                self._earlier = shown
            return principal
        if fact.origin != self.name:
            return self._verified(token, text, fact.signature, at)
        try:
            return self._verified(self.token, text, fact.signature, at)
        except NotAuthenticated:
            return self._verified(self._earlier, text, fact.signature, at)

    def _verified(self, token: str, text: bytes, signature: bytes, at: Moment) -> Principal:
        if not token or not signature:
            raise NotAuthenticated("it is not signed, or its origin's token is not known here")
        return self._authority.verified(token, text, signature, at)


def _bounds_problem(fact: Fact, at: Moment) -> str:
    """Return which bound a fact exceeds; empty if none."""
    if len(fact.origin.encode()) > MAX_NAME_BYTES or not fact.origin:
        return f"the name of its origin has not 1 to {MAX_NAME_BYTES} bytes (MAX_NAME_BYTES)"
    if len(fact.links) > MAX_BROKERS:
        return f"it names more than {MAX_BROKERS} brokers (MAX_BROKERS)"
    if fact.chars > MAX_FACT_CHARS:
        return f"it has more than {MAX_FACT_CHARS} characters (MAX_FACT_CHARS)"
    if max(fact.version, fact.claimed_us, *fact.claim) > at.wall_us + AHEAD_US:
        return "it is of a time more than ten years ahead (AHEAD_US); are all clocks right?"
    return ""


def _grant_problem(fact: Fact, principal: Principal) -> str:
    """Return which grant a fact lacks; empty if none. A broker needs `operate` to remove brokers or
    state plans, and its durable subscriptions may select only events that it may receive.
    """
    is_free = principal.publishes_all and principal.may_receive_all
    if fact.subject in (PART, TRAFFIC) and fact.filter and not is_free:
        return f"{principal.name!r} may not publish and receive all, and so not take part in flows"
    changes = fact.subject == PLAN or fact.subject.startswith(REMOVED)
    if changes and (fact.filter or fact.claimed_us) and not principal.may_operate:
        return (
            f"{principal.name!r} has no grant `operate`, so it removes no broker and states no plan"
        )
    if is_subscription(fact.subject) and fact.filter and not _may_receive(principal, fact.filter):
        return f"{principal.name!r} may not receive all of that durable subscription, as read here"
    return ""


def _may_receive(principal: Principal, text: str) -> bool:
    """Return whether a principal may receive all events that a filter matches. An unreadable filter
    counts as one that matches everything, as it does where events are matched.
    """
    if principal.may_receive_all:
        return True
    try:
        filter = parse_filter(text)
    except InvalidInput:
        return False
    return not filter.variables and covers(_receivable(filter, principal), filter)


def _receivable(filter: Filter, principal: Principal) -> Filter:
    """Return a filter reduced to a principal's grant. With denied expressions only the second
    narrowing may detect that nothing is left.
    """
    try:
        return narrow(narrow(filter, NO_VALUES, principal), NO_VALUES, principal)
    except PalioError:
        return FALSE
