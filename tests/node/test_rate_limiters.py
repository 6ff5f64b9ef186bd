"""Limits count for a principal, not for each of its sessions."""

from __future__ import annotations

import random
from collections import Counter
from typing import Final

import pytest

from palio.model.filters import TRUE
from palio.node import peers, requests
from palio.node import rate_limiters as rate_limiters_module
from palio.node.authority import ANYONE, Authority, Limits, OpenAuthority, Principal
from palio.node.effects import Effect, Moment, Report, Send
from palio.node.memory import MemoryStore
from palio.node.node import Node
from palio.node.operations import Append
from palio.node.rate_limiters import RateLimiter, RateLimiters
from palio.node.settings import Settings
from palio.protocol.limits import PROTOCOL_VERSION
from palio.protocol.messages import (
    UNCOUNTED,
    Bye,
    Cancel,
    Done,
    Failed,
    Hello,
    Message,
    Replace,
    Subscribe,
    SubscribeAll,
    Unsubscribe,
    Welcome,
)
from palio.routing.acyclic import Acyclic
from tests.conftest import seeds
from tests.node.badges import Names

# --- rates ---


def test_without_limits_there_is_no_waiting() -> None:
    limiter, limits = RateLimiter("alice"), Limits()
    limiter.spend(limits, 10**9, 10**12, 0.0)
    assert limiter.wait_s(limits, 0.0) == 0.0


def test_a_rate_is_kept_over_time() -> None:
    limiter, limits = RateLimiter("alice"), Limits(events_per_s=100)
    now, published = 0.0, 0
    while now < 10.0:
        wait = limiter.wait_s(limits, now)
        if wait:
            now += wait
        else:
            limiter.spend(limits, 7, 0, now)
            published += 7
    assert 1_000 <= published <= 1_000 + 100 + 2 * 7


def test_a_bucket_holds_no_more_than_a_second() -> None:
    limiter, limits = RateLimiter("alice"), Limits(bytes_per_s=10)
    limiter.spend(limits, 1, 20, 1_000.0)
    assert limiter.wait_s(limits, 1_000.0) == pytest.approx(1.0)


def test_the_scarcer_of_two_rates_counts() -> None:
    limiter, limits = RateLimiter("alice"), Limits(events_per_s=10, bytes_per_s=100)
    limiter.spend(limits, 15, 100, 0.0)
    assert limiter.wait_s(limits, 0.0) == pytest.approx(0.5)
    limiter.spend(limits, 0, 200, 0.5)
    assert limiter.wait_s(limits, 0.5) == pytest.approx(1.5)


def test_an_account_is_a_principals_whatever_its_grants_are_by_now() -> None:
    rate_limiters = RateLimiters()
    slow, fast = Limits(events_per_s=1), Limits(events_per_s=5)
    alice = rate_limiters.of(Principal("alice", limits=slow))
    rate_limiters.begin(alice, "s1")
    alice.spend(slow, 9, 0, 0.0)
    again = rate_limiters.of(Principal("alice", limits=fast))
    assert again is alice
    assert again.wait_s(slow, 0.0) == 8.0
    assert again.wait_s(fast, 0.0) == pytest.approx(0.8)
    assert rate_limiters.of(Principal("bob", limits=slow)).wait_s(slow, 0.0) == 0.0


@pytest.mark.parametrize(("others", "is_known"), [(1, True), (2, False)])
def test_so_many_are_remembered(
    others: int, is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rate_limiters_module, "MAX_RATE_LIMITERS", 2)
    rate_limiters, limits = RateLimiters(), Limits(events_per_s=1)
    busy = rate_limiters.of(Principal("busy"))
    rate_limiters.begin(busy, "s0")
    for name in ("alice", *(f"p{number}" for number in range(others))):
        limiter = rate_limiters.of(Principal(name))
        rate_limiters.begin(limiter, name)
        limiter.spend(limits, 9, 0, 0.0)
        rate_limiters.end(limiter, name)
    wait_s = rate_limiters.of(Principal("alice")).wait_s(limits, 0.0)
    assert (wait_s > 0) is is_known
    assert rate_limiters.of(Principal("busy")) is busy, "whoever has sessions is not forgotten"


# --- sessions and subscriptions ---

GRACE_S: Final = 30.0


class House:
    """A broker with clients of several principals, and a disk that writes at once."""

    def __init__(
        self, authority: Authority | None = None, settings: Settings | None = None
    ) -> None:
        self.store = MemoryStore()
        self.now = 1.0
        self.node = Node("b1", Acyclic("b1"), self.store, authority=authority, settings=settings)
        self.core = self.node._core
        self.sessions: dict[int, str] = {}
        self.received: Counter[int] = Counter()
        self.reports: list[Report] = []
        self._links = 0
        self._id = 0
        self._carry_out(self.node.start(self.at))

    @property
    def at(self) -> Moment:
        return Moment(self.now, int(self.now * 1e6))

    def greet(self, token: str, *, session: str = "", received: int = 0) -> Message:
        """A new link, whose number is that of the last one and 1; the answer to its greeting."""
        self._links += 1
        link = self._links
        self._carry_out(self.node.accept(link, self.at))
        hello = Hello(
            "client",
            token,
            PROTOCOL_VERSION,
            token,
            session=session,
            received=received,
            identity=token,
        )
        answer = self._carry_out(self.node.receive(link, hello, self.at))[link][0]
        if isinstance(answer, Welcome):
            self.sessions[link] = answer.session
            self.received[link] = received
        self.check()
        return answer

    def enter(self, token: str) -> int:
        """The link of a client that is let in."""
        answer = self.greet(token)
        assert isinstance(answer, Welcome), answer
        return self._links

    def leave(self, link: int) -> str:
        """A connection breaks; the session that is away now."""
        self._carry_out(self.node.lost(link, self.at))
        self.check()
        return self.sessions.pop(link)

    def say(self, link: int, message: Message) -> list[Message]:
        said = self._carry_out(self.node.receive(link, message, self.at)).get(link, [])
        self.check()
        return said

    def subscribe(self, link: int, key: int, text: str = "x > 0", *, durable: str = "") -> str:
        """The limit that a subscription exceeds, if it is refused for one."""
        self._id += 1
        said = self.say(link, Subscribe(self._id, key, text, durable=durable))
        answer = next(each for each in said if isinstance(each, Done | Failed))
        return "" if isinstance(answer, Done) else answer.failure.details.get("limit", "?")

    def wait(self, seconds: float) -> None:
        """Time passes, and all that is to be done by then is done."""
        self.now += seconds
        for _ in range(50):
            if self.node.wake_at > self.now:
                break
            self._carry_out(self.node.tick(self.at))
            self.check()

    def check(self) -> None:
        """Each account is the sum over the sessions of its principal, and there are no others."""
        owned: dict[int, tuple[RateLimiter, set[str], int]] = {}
        for session in self.core.sessions.values():
            limiter = session.limiter
            assert limiter.name == session.principal.name
            _, ids, count = owned.get(id(limiter), (limiter, set[str](), 0))
            owned[id(limiter)] = limiter, ids | {session.id}, count + len(session.subscriptions)
        for limiter, ids, count in owned.values():
            assert (set(limiter.sessions), limiter.subscriptions) == (ids, count)
            assert limiter.cost == sum(self.core.sessions[each].cost for each in ids)
            assert limiter.name != ANYONE or len(ids) == 1
        named = {each.name: each for each, _, _ in owned.values() if each.name != ANYONE}
        assert self.core.rate_limiters._in_use == named
        for idle in self.core.rate_limiters._idle.values():
            assert (idle.sessions, idle.subscriptions) == ({}, 0)

    def _carry_out(self, effects: list[Effect]) -> dict[int, list[Message]]:
        said: dict[int, list[Message]] = {}
        waiting = list(effects)
        while waiting:
            effect = waiting.pop(0)
            if isinstance(effect, Send):
                said.setdefault(effect.link, []).append(effect.message)
                self.received[effect.link] += type(effect.message) not in UNCOUNTED
            elif isinstance(effect, Report):
                self.reports.append(effect)
            elif isinstance(effect, Append):
                self.store.write((*effect.operations, *effect.released))
                waiting += self.node.stored(effect.ticket, self.at)
        return said


def names(**limits: int) -> Names:
    return Names(
        Principal("alice", TRUE, TRUE, limits=Limits(**limits)), Principal("bob", TRUE, TRUE)
    )


def test_subscriptions_count_over_all_sessions() -> None:
    house = House(names(subscriptions=2))
    one, other, bob = house.enter("alice"), house.enter("alice"), house.enter("bob")
    assert house.subscribe(one, 1) == house.subscribe(other, 1) == ""
    assert house.subscribe(one, 2) == house.subscribe(other, 2) == "MAX_SUBSCRIPTIONS"
    assert house.subscribe(house.enter("alice"), 1) == "MAX_SUBSCRIPTIONS"
    assert house.subscribe(bob, 1) == "", "others have their own"
    house.say(one, Unsubscribe(9, 1))
    assert house.subscribe(other, 2) == ""


def test_the_refusal_says_what_to_do() -> None:
    house = House(names(subscriptions=1, sessions=1))
    alice = house.enter("alice")
    _, failed = house.say(alice, SubscribeAll((Subscribe(1, 1, "x = 1"), Subscribe(2, 2, "x = 2"))))
    assert isinstance(failed, Failed)
    assert failed.failure.kind == "LimitExceeded"
    assert failed.failure.message == (
        "the number of subscriptions of 'alice' at this broker exceeds MAX_SUBSCRIPTIONS = 1; end "
        "one, or have a grant with more (limits.subscriptions)"
    )
    answer = house.greet("alice")
    assert answer == Bye(
        "LimitExceeded",
        "the number of sessions of 'alice' at this broker exceeds limits.sessions = 1; close one, "
        "or have a grant with more",
    )


@pytest.mark.parametrize("token", ["alice", "bob"])
def test_sessions_of_a_principal_have_a_limit(token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "MAX_SESSIONS_OF_ONE", 3)
    house = House(names(sessions=3))
    links = [house.enter(token) for _ in range(3)]
    answer = house.greet(token)
    assert isinstance(answer, Bye)
    assert answer.code == "LimitExceeded"
    house.enter("bob" if token == "alice" else "alice")
    house.say(links[0], Bye("closed", ""))
    house.enter(token)


def test_sessions_of_a_broker_have_a_limit_and_the_log_is_not_filled() -> None:
    house = House(OpenAuthority(), Settings(max_sessions=1))
    house.enter("ann")
    for _ in range(20):
        answer = house.greet("bob")
        assert isinstance(answer, Bye)
        assert answer.code == "LimitExceeded"
        assert "MAX_SESSIONS = 1; try another broker" in answer.reason
    assert [
        each.details["count"] for each in house.reports if each.event == "connection_rejected"
    ] == [1]
    assert house.core.rate_limited_log.totals["connection_rejected"] == 20


def test_those_who_show_nothing_share_no_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "MAX_SESSIONS_OF_ONE", 1)
    house = House(OpenAuthority(), Settings(max_subscriptions=1))
    for link in [house.enter("ann") for _ in range(3)]:
        assert house.subscribe(link, 1) == ""
        assert house.subscribe(link, 2) == "MAX_SUBSCRIPTIONS"


def test_by_default_a_principal_has_what_the_broker_allows() -> None:
    house = House(names(), Settings(max_subscriptions=1))
    one, other = house.enter("bob"), house.enter("bob")
    assert house.subscribe(one, 1) == ""
    assert house.subscribe(other, 1) == "MAX_SUBSCRIPTIONS"


def test_what_is_away_makes_room_and_what_is_connected_stays() -> None:
    house = House(names(sessions=3, subscriptions=2))
    first, second, third = (house.enter("alice") for _ in range(3))
    assert house.subscribe(first, 1) == house.subscribe(second, 1) == ""
    gone = house.leave(second)
    house.wait(1.0)
    last = house.leave(third)
    fourth = house.enter("alice")
    assert gone not in house.core.sessions, "it was away for longest"
    assert last in house.core.sessions
    assert house.subscribe(fourth, 1) == ""
    assert house.subscribe(fourth, 2) == "MAX_SUBSCRIPTIONS"
    assert last in house.core.sessions, "its end would make no room"
    house.leave(first)
    assert house.subscribe(fourth, 2) == ""
    assert house.subscribe(fourth, 3) == "MAX_SUBSCRIPTIONS"


def test_a_durable_subscription_that_changes_its_session_is_one() -> None:
    house = House(names(subscriptions=1))
    one, other = house.enter("alice"), house.enter("alice")
    assert house.subscribe(one, 1, durable="d") == ""
    assert house.subscribe(other, 5, durable="d") == ""
    assert house.subscribe(other, 6, durable="e") == "MAX_SUBSCRIPTIONS"
    assert house.subscribe(one, 2) == "MAX_SUBSCRIPTIONS"


def test_durable_subscriptions_count_while_their_owner_is_away() -> None:
    authority = names(subscriptions=2)
    house = House(authority)
    for name in ("d", "e"):
        link = house.enter("alice")
        assert house.subscribe(link, 1, durable=name) == ""
        house.say(link, Bye("closed", ""))
    link = house.enter("alice")
    assert house.subscribe(link, 1, durable="f") == "MAX_SUBSCRIPTIONS"
    assert house.subscribe(link, 1, durable="d") == "", "it takes up what it has"
    assert house.subscribe(house.enter("bob"), 1, durable="f") == ""
    house.say(link, Unsubscribe(9, 1, forget=True))
    assert house.subscribe(link, 1, durable="f") == ""


def test_a_session_that_is_resumed_keeps_its_account_under_the_newest_limits() -> None:
    authority = names(subscriptions=1)
    house = House(authority)
    link = house.enter("alice")
    assert house.subscribe(link, 1) == ""
    authority.known["alice"] = Principal("alice", TRUE, TRUE, limits=Limits(subscriptions=2))
    answer = house.greet("alice", session=house.leave(link), received=house.received[link])
    assert isinstance(answer, Welcome)
    assert answer.resumed
    link = house._links
    assert house.subscribe(link, 2) == ""
    assert house.subscribe(link, 3) == "MAX_SUBSCRIPTIONS"


def test_a_session_of_many_gives_back_at_once_what_leaves_the_tables_in_pieces() -> None:
    count = peers.STEPS + 1
    house = House(names(subscriptions=count))
    for _ in range(2):
        link = house.enter("alice")
        assert all(house.subscribe(link, key, f"x = {key}") == "" for key in range(count))
        house.say(link, Bye("closed", ""))
    house.wait(0.0)


@pytest.mark.parametrize("seed", seeds(10, nightly=1_000))
def test_accounts_are_the_sums_over_sessions_whatever_happens(seed: int) -> None:
    chance = random.Random(seed)
    authority = names(sessions=3, subscriptions=4)
    house = House(authority, Settings(max_subscriptions=6, client_grace_s=GRACE_S))
    away: list[tuple[str, str, int]] = []
    whose: dict[int, str] = {}
    ids = iter(range(1_000, 1_000_000))
    for _ in range(150):
        links = list(house.sessions)
        link = chance.choice(links) if links else 0
        key, text = chance.randrange(4), f"x = {chance.randrange(3)}"
        durable = chance.choice(["", "", "d", "e"])
        match chance.choice(["in", "back", "out", "bye", "wait", "grant"] + 8 * ["say"]):
            case "in":
                token = chance.choice(["alice", "bob"])
                if isinstance(house.greet(token), Welcome):
                    whose[house._links] = token
            case "back" if away:
                token, session, received = away.pop(chance.randrange(len(away)))
                if isinstance(house.greet(token, session=session, received=received), Welcome):
                    whose[house._links] = token
            case "out" if link:
                away.append((whose[link], house.leave(link), house.received[link]))
            case "bye" if link:
                house.say(link, Bye("closed", ""))
                del house.sessions[link]
            case "wait":
                house.wait(chance.choice([0.1, 4.0, GRACE_S]))
                house.sessions = {
                    each: id for each, id in house.sessions.items() if id in house.core.sessions
                }
            case "grant":
                limits = Limits(subscriptions=chance.randrange(1, 6))
                allow_subscribe = chance.choice([TRUE, authority.known["bob"].allow_subscribe])
                authority.known["alice"] = Principal("alice", TRUE, allow_subscribe, limits=limits)
            case "say" if link:
                requests: list[Message] = [
                    Subscribe(next(ids), key, text, durable=durable),
                    SubscribeAll(
                        tuple(Subscribe(next(ids), each, text) for each in (key, key + 1))
                    ),
                    Replace(next(ids), key, text),
                    Unsubscribe(next(ids), key, chance.random() < 0.5),
                    Cancel(next(ids), text, chance.random() < 0.5),
                ]
                house.say(link, chance.choice(requests))
    for link in list(house.sessions):
        house.leave(link)
    house.wait(2 * GRACE_S)
    house.wait(2 * GRACE_S)
    assert not house.core.sessions


COSTLY: Final = "a > b * 2"
"""A filter of cost 5."""


def test_residuals_of_a_principal_have_a_cost_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "MAX_PRINCIPAL_COST", 10)
    house = House(names())
    one, other = house.enter("alice"), house.enter("alice")
    assert house.subscribe(one, 1, COSTLY) == ""
    assert house.subscribe(other, 1, COSTLY, durable="d") == ""
    assert house.subscribe(other, 2, COSTLY) == house.subscribe(one, 2, COSTLY) != ""
    assert house.subscribe(one, 3, COSTLY, durable="d") == "", "it comes from the other session"
    assert house.subscribe(house.enter("bob"), 1, COSTLY) == ""
    house.leave(one)
    assert house.subscribe(other, 4, COSTLY) == "", "one that is away makes room"
    nobody = House(OpenAuthority())
    for _ in range(2):
        link = nobody.enter("dave")
        assert [nobody.subscribe(link, key, COSTLY) for key in range(3)] == [
            "",
            "",
            "MAX_PRINCIPAL_COST",
        ]
