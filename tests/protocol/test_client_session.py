"""A session by itself: what it dials, says and tells, and when."""

from __future__ import annotations

from math import inf

import pytest

from palio.errors import (
    Closed,
    DamagedFrame,
    IllegalMessage,
    LimitExceeded,
    NotAuthenticated,
    PalioError,
    Unreachable,
)
from palio.protocol.client_session import ClientSession, Connector
from palio.protocol.limits import (
    ACK_DELAY_S,
    BACKOFF_MIN_S,
    DAMAGE_TRIES,
    DIAL_S,
    GREETING_S,
    MOST_TOGETHER,
    PROTOCOL_VERSION,
    SILENT_BEATS,
    TOGETHER_CHARS,
)
from palio.protocol.messages import (
    Bye,
    Done,
    Hello,
    Message,
    Ping,
    Pong,
    Settle,
    StreamAck,
    Subscribe,
    SubscribeAll,
    Welcome,
)

BEAT_S = 1.0


class Line(Connector):
    """The connections of a session, and its owner: what was done and told, in order."""

    def __init__(self, *urls: str, joins: bool = False) -> None:
        """`joins`: subscriptions that are said at once go together."""
        self.done: list[str] = []
        self.said: list[Message] = []
        self.heard: list[Message] = []
        self.error: Exception | None = None
        self.has_connection = False
        hello = Hello("client", "a", PROTOCOL_VERSION)
        soon = (lambda: self.done.append("soon")) if joins else None
        self.session = ClientSession(
            self, Told(self), urls or ("b1",), hello, lambda: 0.5, soon=soon
        )

    def welcomed(self, now: float = 0.0, *, resumed: bool = False, received: int = 0) -> None:
        """Connect as far as that goes by itself."""
        self.session.dialled(now)
        welcome = Welcome("b1", "s", resumed, received, "a/1", heartbeat_s=BEAT_S)
        self.session.receive(welcome, now)

    def take_done(self) -> list[str]:
        done, self.done = self.done, []
        return done

    def take_said(self) -> list[Message]:
        said, self.said = self.said, []
        return said

    # --- `Connector` ---

    def dial(self, url: str) -> None:
        self.has_connection = True
        self.done.append(f"dial {url}")

    def send(self, message: Message) -> None:
        self.said.append(message)

    def close(self) -> None:
        if self.has_connection:
            self.has_connection = False
            self.done.append("close")

    def opened(self, *, resumed: bool) -> None:
        self.done.append("resumed" if resumed else "opened")

    def unopened(self, error: PalioError, *, again: bool) -> None:
        self.error = error
        self.done.append("unopened, again" if again else "unopened")

    def broke(self, error: Exception) -> None:
        self.error = error
        self.done.append("broke")


class Told:
    """What the owner of a session is told goes to its line too."""

    def __init__(self, line: Line) -> None:
        self.line = line

    def renewed(self, _session: ClientSession, *, is_first: bool) -> None:
        self.line.done.append("first" if is_first else "renewed")

    def process(self, _session: ClientSession, message: Message) -> None:
        self.line.heard.append(message)

    def flow(self, _session: ClientSession) -> None:
        self.line.done.append("flow")

    def lost(self, _session: ClientSession) -> None:
        self.line.done.append("lost")

    def ended(self, _session: ClientSession, error: PalioError) -> None:
        self.line.error = error
        self.line.done.append("ended")


def connected(*, joins: bool = False) -> Line:
    line = Line(joins=joins)
    line.session.connect(0.0)
    line.welcomed()
    line.take_done()
    line.take_said()
    return line


@pytest.fixture
def line() -> Line:
    """One that is connected."""
    return connected()


@pytest.fixture
def joining() -> Line:
    """One that is connected, and whose subscriptions go together."""
    return connected(joins=True)


def test_a_session_begins_with_a_greeting_and_is_told_to_its_owner_first() -> None:
    line = Line()
    line.session.connect(0.0)
    line.welcomed()
    assert line.take_done() == ["dial b1", "first", "opened", "flow"]
    (hello,) = line.take_said()
    assert isinstance(hello, Hello)
    assert (hello.name, hello.session, hello.received) == ("a", "", 0)
    assert (line.session.broker, line.session.publisher) == ("b1", "a/1")


def test_a_ping_is_answered_before_the_welcome_too() -> None:
    line = Line()
    line.session.connect(0.0)
    line.session.dialled(0.0)
    line.session.receive(Pong(), 0.0)
    line.session.receive(Ping(), 0.0)
    assert line.take_said()[1:] == [Pong()]
    line.session.receive(Settle(1), 0.0)
    assert line.take_done() == ["dial b1", "close", "unopened"]


def test_who_is_beyond_a_limit_is_told_so_once_no_other_broker_answers() -> None:
    line = Line("b1", "b2")
    line.session.connect(0.0)
    line.session.lost(ConnectionRefusedError(), 0.0)
    line.session.dialled(0.0)
    line.session.receive(Bye("LimitExceeded", "limits.sessions = 1"), 0.0)
    assert line.take_done() == ["dial b1", "close", "dial b2", "close", "unopened"]
    assert isinstance(line.error, LimitExceeded)


def test_who_connects_with_patience_tries_all_addresses_until_it_is_over() -> None:
    line = Line("b1", "b2")
    line.session.connect(0.0, retry_s=1.0)
    line.session.lost(ConnectionRefusedError(), 0.999)
    line.session.lost(ConnectionRefusedError(), 0.999)
    assert line.take_done() == ["dial b1", "close", "dial b2", "close", "unopened, again"]
    line.session.tick(line.session.wake_at)
    line.session.lost(ConnectionRefusedError(), 1.0)
    line.session.lost(ConnectionRefusedError(), 1.0)
    assert line.take_done() == ["dial b1", "close", "dial b2", "close", "unopened"]
    assert line.session.wake_at == inf


def test_who_connects_with_patience_is_told_when_the_session_ends_in_a_pause() -> None:
    line = Line()
    line.session.connect(0.0, retry_s=inf)
    line.session.lost(ConnectionRefusedError(), 0.0)
    line.session.end()
    assert line.take_done() == ["dial b1", "close", "unopened, again", "unopened", "ended"]


def test_a_broker_that_denies_who_connects_with_patience_is_not_asked_again() -> None:
    line = Line()
    line.session.connect(0.0, retry_s=inf)
    line.session.dialled(0.0)
    line.session.receive(Bye("NotAuthenticated", "who?"), 0.0)
    assert line.take_done() == ["dial b1", "close", "unopened"]
    assert isinstance(line.error, NotAuthenticated)


def test_every_address_is_tried_once_for_who_connects() -> None:
    line = Line("b1", "b2")
    line.session.connect(0.0)
    line.session.lost(ConnectionRefusedError(), 0.0)
    line.session.lost(ConnectionRefusedError(), 0.0)
    assert line.take_done() == ["dial b1", "close", "dial b2", "close", "unopened"]
    assert isinstance(line.error, Unreachable)
    assert "b1" in str(line.error)
    assert "b2" in str(line.error)
    assert line.session.wake_at == inf


@pytest.mark.parametrize(
    ("dialled_at", "ends_at"),
    [(None, DIAL_S), (1.0, 1.0 + GREETING_S), (DIAL_S - 0.5, DIAL_S)],
)
def test_an_attempt_takes_so_long_at_the_most(dialled_at: float | None, ends_at: float) -> None:
    line = Line()
    line.session.connect(0.0)
    if dialled_at is not None:
        line.session.dialled(dialled_at)
    assert line.session.wake_at == ends_at
    line.session.tick(ends_at - 0.001)
    assert line.take_done() == ["dial b1"]
    line.session.tick(ends_at)
    assert line.take_done() == ["close", "unopened"]


def test_a_broker_that_turns_us_away_for_good_is_not_asked_again() -> None:
    line = Line("b1", "b2")
    line.session.connect(0.0)
    line.session.dialled(0.0)
    line.session.receive(Bye("NotAuthenticated", "who?"), 0.0)
    assert line.take_done() == ["dial b1", "close", "unopened"]
    assert isinstance(line.error, NotAuthenticated)


def test_what_the_broker_has_not_seen_goes_again_in_a_session_that_is_resumed(line: Line) -> None:
    for number in range(3):
        line.session.send(Settle(number))
    line.session.receive(Done(0), 0.0)
    line.session.lost(Unreachable("cut"), 1.0)
    assert line.take_done() == ["close", "broke", "lost"]
    assert line.session.wake_at == 1.0 + BACKOFF_MIN_S
    line.take_said()
    line.session.tick(2.0)
    line.welcomed(2.0, resumed=True, received=1)
    assert line.take_done() == ["dial b1", "resumed", "flow"]
    hello, *again = line.take_said()
    assert isinstance(hello, Hello)
    assert (hello.session, hello.received) == ("s", 1)
    assert again == [Settle(1), Settle(2)]


def test_of_a_session_that_is_lost_nothing_is_sent_again(line: Line) -> None:
    line.session.send(Settle(1))
    line.session.lost(Unreachable("cut"), 1.0)
    line.session.tick(2.0)
    line.take_done()
    line.take_said()
    line.welcomed(2.0)
    assert line.take_done() == ["renewed", "opened", "flow"]
    assert len(line.take_said()) == 1, "the greeting"


def test_what_came_is_said_a_moment_later(line: Line) -> None:
    line.session.receive(Done(1), 0.5)
    line.session.receive(Done(2), 0.5)
    assert line.heard == [Done(1), Done(2)]
    assert not line.take_said()
    assert line.session.wake_at == 0.5 + ACK_DELAY_S
    line.session.tick(line.session.wake_at)
    assert line.take_said() == [StreamAck(2)]


def test_a_silent_broker_is_asked_and_then_given_up(line: Line) -> None:
    for beat in range(1, SILENT_BEATS):
        line.session.tick(beat * BEAT_S)
        assert line.take_said() == [Ping()]
    line.session.tick(SILENT_BEATS * BEAT_S)
    assert line.take_done() == ["close", "broke", "lost"]


@pytest.mark.parametrize("says_it", [True, False])
def test_what_one_end_cannot_take_ends_the_session(line: Line, says_it: bool) -> None:
    line.session.send(Settle(1))
    line.take_said()
    if says_it:
        line.session.illegal(IllegalMessage("the broker", "what is that?"), 1.0)
        assert line.take_said() == [Bye("closed")]
    else:
        line.session.receive(Bye("IllegalMessage", "what is that?"), 1.0)
        assert line.take_said() == []
    assert line.take_done() == ["close", "ended"]
    assert isinstance(line.error, IllegalMessage)
    with pytest.raises(Closed):
        line.session.connect(2.0)


def test_what_is_damaged_on_its_way_is_sent_again_unless_that_is_no_accident(line: Line) -> None:
    now = 0.0
    for attempt in range(1, DAMAGE_TRIES + 1):
        line.session.illegal(DamagedFrame("the broker", "a bit turned round"), now)
        if attempt == DAMAGE_TRIES:
            break
        assert line.take_done() == ["close", "broke", "lost"]
        now = line.session.wake_at
        line.session.tick(now)
        line.welcomed(now, resumed=True)
        line.take_done()
    assert line.take_done() == ["close", "ended"]
    assert isinstance(line.error, DamagedFrame)


def test_a_pause_says_so_and_the_end_is_final(line: Line) -> None:
    line.session.pause()
    assert line.take_said() == [Bye("suspended")]
    line.session.connect(1.0)
    line.welcomed(1.0, resumed=True)
    line.take_said()
    line.take_done()
    line.session.end()
    line.session.end()
    assert line.take_said() == [Bye("closed")]
    assert line.take_done() == ["close", "ended"]
    with pytest.raises(Closed):
        line.session.connect(2.0)


def test_who_waits_to_be_connected_is_told_of_the_end() -> None:
    line = Line()
    line.session.connect(0.0)
    line.session.end()
    assert line.take_done() == ["dial b1", "close", "unopened", "ended"]
    assert isinstance(line.error, Closed)


def test_nobody_waits_any_longer() -> None:
    line = Line()
    line.session.connect(0.0)
    line.session.abandon()
    line.session.dialled(0.1)
    assert line.take_done() == ["dial b1", "close"]
    assert line.session.wake_at == inf
    assert not line.take_said()


# --- subscriptions that are said together ---


def wanted(key: int, filter: str = "x = 1", durable: str = "") -> Subscribe:
    return Subscribe(key, key, filter, durable=durable)


def test_subscriptions_of_one_turn_go_together_and_before_what_follows(joining: Line) -> None:
    first, second, third = map(wanted, range(3))
    joining.session.send(first)
    joining.session.send(second)
    assert (joining.take_done(), joining.take_said()) == (["soon"], [])
    joining.session.send(Settle(7))
    assert joining.take_said() == [SubscribeAll((first, second)), Settle(7)]
    joining.session.send(third)
    joining.session.flush()
    joining.session.flush()
    assert joining.take_said() == [third]
    assert joining.session.stream.sent == 3


@pytest.mark.parametrize("count", [MOST_TOGETHER - 1, MOST_TOGETHER, MOST_TOGETHER + 1])
def test_so_many_subscriptions_go_together_at_the_most(joining: Line, count: int) -> None:
    for key in range(count):
        joining.session.send(wanted(key))
    said = joining.take_said()
    assert len(said) == (count >= MOST_TOGETHER)
    joining.session.flush()
    said += joining.take_said()
    sizes = [len(each.requests) if isinstance(each, SubscribeAll) else 1 for each in said]
    assert sizes == ([MOST_TOGETHER, 1] if count > MOST_TOGETHER else [count])


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_so_many_characters_go_together_at_the_most(joining: Line, more: int) -> None:
    first, second = wanted(1, "x" * (TOGETHER_CHARS - 10)), wanted(2, "x" * (10 + more))
    joining.session.send(first)
    joining.session.send(second)
    joining.session.flush()
    together: list[Message] = [SubscribeAll((first, second))]
    assert joining.take_said() == (together if more <= 0 else [first, second])


def test_a_durable_subscription_goes_by_itself_and_in_its_order(joining: Line) -> None:
    listed = [wanted(1), wanted(2, durable="d"), wanted(3)]
    for each in listed:
        joining.session.send(each)
    joining.session.flush()
    assert joining.take_said() == listed


def test_what_waits_to_be_said_together_goes_with_a_session_that_is_resumed(joining: Line) -> None:
    joining.session.send(wanted(1))
    joining.session.lost(Unreachable("cut"), 1.0)
    joining.session.flush()
    joining.session.tick(2.0)
    joining.take_said()
    joining.welcomed(2.0, resumed=True)
    assert joining.take_said()[1:] == [wanted(1)]


def test_what_waits_to_be_said_together_is_forgotten_with_the_session(joining: Line) -> None:
    joining.session.send(wanted(1))
    joining.session.lost(Unreachable("cut"), 1.0)
    joining.session.tick(2.0)
    joining.welcomed(2.0)
    joining.take_said()
    joining.session.flush()
    assert joining.take_said() == []
