"""`FactVerifier`: what a broker signs of what it says, and what it believes of what others said.

1. A broker signs each fact about itself, and believes of every other broker only what is signed by
   the key of a token that its own authority vouches for. In an open network nobody signs.
2. A token is a fact too (`TOKEN`), which verifies itself, and comes before all else that is signed.
   Its time is not looked at: a broker that is away keeps its durable subscriptions.
3. Whatever is believed has bounds, versions and numbers of claims among them: none is so far above
   the time of the wall that nobody could outdo it.
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
"""The subject under which a broker says where others can reach it (`AddressBook`)."""

FOUND: Final = "/found"
"""The subject under which a broker names those of its neighbours that are stand-ins for others
(`palio.node.peer_discovery`)."""

LINKS: Final = "links"
"""The subject of a broker's list of neighbours; durable subscriptions have a `/` in theirs."""

LOSS_REPORT: Final = "/lapse"
"""The subject under which a broker says that live events may have been lost: what is news is that
it says so again."""

LOG: Final = "/log"
"""The subject under which a broker says which log it has: another one has lost what was before."""

LEAVING: Final = "/leaving"
"""The subject under which a broker says that it is about to go, until it says that it is not."""

PART: Final = "/multicast"
"""The subject under which a broker says that it takes part in flows (`palio.node.multicasting`)."""

PEERS: Final = "/peers"
"""The subject under which a broker keeps where it dials besides what its configuration names
(`palio.node.membership`)."""

PLAN: Final = "/plan"
"""The subject under which a broker states a plan of multicast groups (`palio.node.plans`)."""

REMOVED: Final = "/removed/"
"""The prefix of subjects that say that another broker is gone; no owner's name is empty."""

TOKEN: Final = "/token"
"""The subject of a broker's bound token."""

OF_AN_INCARNATION: Final = frozenset({LINKS, LOSS_REPORT, PART})
"""A broker's facts about its present incarnation. They are sent though the disk refuses them: live
events go by it, and one that starts says it again, or is told by others and takes it back."""


def is_subscription(subject: str) -> bool:
    """Return whether a fact is about a durable subscription."""
    return subject != LINKS and not subject.startswith("/")


def is_live_subscription(fact: Fact) -> bool:
    """Return whether a fact is about a durable subscription that lives at its
    origin.
    """
    return is_subscription(fact.subject) and bool(fact.filter)


_NOTHING: Final = b""
"""The text that a broker signs to show that its token is good."""

_ANY_TIME: Final = Moment(0.0, 0)
"""The time of a bound token is not looked at."""


class FactVerifier:
    """Signatures that one broker makes, and its checks of others'."""

    def __init__(
        self, name: str, identity: Identity = NOBODY, authority: Authority | None = None
    ) -> None:
        self.name = name
        self.token = identity.token
        self._identity = identity
        self._authority = authority or OpenAuthority()
        self._earlier = self.token
        """The token of an earlier incarnation of this broker, once it has been learned of."""

    @property
    def _is_open(self) -> bool:
        return isinstance(self._authority, OpenAuthority)

    def filter_signed(self, facts: Iterable[Fact]) -> list[Fact]:
        """Take the facts of the disk, without those believed before signatures were asked for."""
        known = list(facts)
        if self._is_open:
            return known
        signed = {each.origin for each in known if each.subject == TOKEN and each.signature}
        return [
            each
            for each in known
            if each.origin == self.name or (each.signature and each.origin in signed)
        ]

    @cached_property
    def own(self) -> Principal | None:
        """Return what this broker was granted; None if nobody holds it to that."""
        if self._is_open:
            return None
        proof = self._identity.sign(_NOTHING)
        try:
            return self._authority.verified(self.token, _NOTHING, proof, _ANY_TIME)
        except NotAuthenticated:
            return None

    def narrow_to_grant(self, fact: Fact) -> Fact:
        """A fact about this broker without what its grant leaves out. Others would refuse that, and
        with it all that is said later.
        """
        own = self.own
        if own is None or not _grant_problem(fact, own):
            return fact
        if not is_subscription(fact.subject):
            return msgspec.structs.replace(fact, filter="", claimed_us=0)
        left = str(_receivable(parse_filter(fact.filter), own))
        return msgspec.structs.replace(fact, filter=left if _may_receive(own, left) else str(FALSE))

    def may_receive(self, token: Fact | None, filter: str) -> bool:
        """Return whether the broker that has told this token may receive all that a filter matches.
        Its signature was looked at when the token became known (`check`); it may be revoked since.
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
        """A fact about this broker as others believe it."""
        if not self.token:
            return fact
        fact = self.narrow_to_grant(fact)
        return msgspec.structs.replace(fact, signature=self._identity.sign(fact_text(fact)))

    def check(self, fact: Fact, token: str, at: Moment) -> str:
        """Why a fact is not believed; empty if it is. `token` is what is known as its origin's."""
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
    """Return what is out of bounds about a fact."""
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
    """A durable subscription is at no home that may not receive all of it, and only those who may
    operate retire brokers and state plans.
    """
    is_free = principal.publishes_all and principal.may_receive_all
    if fact.subject == PART and fact.filter and not is_free:
        return f"{principal.name!r} may not publish and hear all, and so not take part in flows"
    changes = fact.subject == PLAN or fact.subject.startswith(REMOVED)
    if changes and (fact.filter or fact.claimed_us) and not principal.may_operate:
        return f"{principal.name!r} has no grant `operate`, so it retires nobody and states no plan"
    if is_subscription(fact.subject) and fact.filter and not _may_receive(principal, fact.filter):
        return f"{principal.name!r} may not hear all of that durable subscription, as read here"
    return ""


def _may_receive(principal: Principal, text: str) -> bool:
    """Return whether a principal may receive all that a filter matches. One that cannot be read
    counts as everything, as wherever events are chosen: only who receives all hears that.
    """
    if principal.may_receive_all:
        return True
    try:
        filter = parse_filter(text)
    except InvalidInput:
        return False
    return not filter.variables and covers(_receivable(filter, principal), filter)


def _receivable(filter: Filter, principal: Principal) -> Filter:
    """Return what a principal may receive of what a filter matches: after a denial of expressions
    only the second narrowing may find that nothing is left.
    """
    try:
        return narrow(narrow(filter, NO_VALUES, principal), NO_VALUES, principal)
    except PalioError:
        return FALSE
