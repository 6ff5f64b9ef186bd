from __future__ import annotations

import pytest

from palio.errors import LimitExceeded
from palio.node.authority import ANYONE, Limits, Principal
from palio.protocol.limits import MAX_GREETING_BYTES
from palio.server import connection_limiter
from palio.server.connection_limiter import ConnectionLimiter, ConnectionSlot
from palio.server.counters import Traffic
from tests.server.fronts import WAIT_S
from tests.server.helpers import until

SIZE = MAX_GREETING_BYTES + 1
"""The least that needs room."""


class Socket:
    """A socket that is held, and what becomes of it."""

    def __init__(
        self, limiter: ConnectionLimiter, principal: str = "", *, is_broker: bool = False
    ) -> None:
        self.slot: ConnectionSlot = limiter.take(WAIT_S)
        self.cut = ""
        self.is_let_in = self.slot.hold(self._cut)
        self.went_on = 0
        if principal or is_broker:
            self.slot.shown(None if is_broker else Principal(principal))

    def _cut(self, reason: str) -> None:
        self.cut = reason

    def claim(self, size: int = SIZE) -> bool:
        """Whether it does not wait."""
        return self.slot.claim(size, self._went_on)

    def _went_on(self) -> None:
        self.went_on += 1


@pytest.fixture
async def limiter(monkeypatch: pytest.MonkeyPatch) -> ConnectionLimiter:
    """Room for two messages of each principal and for six in all; one of each waits."""
    monkeypatch.setattr(connection_limiter, "SHARE_BYTES", 2 * SIZE)
    monkeypatch.setattr(connection_limiter, "INTAKE_BYTES", 6 * SIZE)
    monkeypatch.setattr(connection_limiter, "MAX_WAITING", 2)
    monkeypatch.setattr(connection_limiter, "YIELD_S", 0.0)
    monkeypatch.setattr(connection_limiter, "MAX_STRANGERS", 3)
    monkeypatch.setattr(connection_limiter, "STRANGER_BYTES", 100)
    return ConnectionLimiter(10, Traffic())


# --- strangers ---


async def test_beyond_the_most_strangers_the_oldest_gives_up_its_place(
    limiter: ConnectionLimiter,
) -> None:
    strangers = [Socket(limiter) for _ in range(5)]
    assert [bool(each.cut) for each in strangers] == [True, True, False, False, False]
    assert all(each.is_let_in for each in strangers)
    assert (limiter.taken, limiter.traffic.refused) == (3, 2)


async def test_who_has_shown_a_principal_keeps_the_place(limiter: ConnectionLimiter) -> None:
    known = [Socket(limiter, "ann") for _ in range(10)]
    stranger = Socket(limiter)
    assert not stranger.is_let_in
    assert not any(each.cut for each in known)
    known[0].slot.leave()
    known[0].slot.leave()
    stranger = Socket(limiter)
    assert stranger.is_let_in
    assert not Socket(limiter).cut
    assert "limits.max_connections" in stranger.cut
    assert (limiter.taken, limiter.traffic.refused) == (10, 2)


async def test_bytes_of_strangers_are_taken_from_the_largest(limiter: ConnectionLimiter) -> None:
    small, large, newest = (Socket(limiter) for _ in range(3))
    small.slot.keep(10)
    large.slot.keep(50)
    large.slot.keep(70)
    newest.slot.keep(20)
    assert not any(each.cut for each in (small, large, newest))
    small.slot.keep(11)
    assert large.cut
    assert not small.cut
    assert limiter.stranger_bytes == 31
    newest.slot.shown(Principal("ann"))
    newest.slot.keep(1_000)
    assert limiter.stranger_bytes == 11
    small.slot.leave()
    assert limiter.stranger_bytes == 0


async def test_a_handshake_that_does_not_end_gives_its_place_back() -> None:
    limiter = ConnectionLimiter(2, Traffic())
    held, lost = limiter.take(0.01), limiter.take(0.01)
    held.hold(print)
    await until(lambda: limiter.taken == 1)
    lost.leave()
    assert not lost.hold(print)
    assert limiter.taken == 1
    held.leave()
    assert limiter.taken == 0


# --- principals ---


def is_refused(socket: Socket, principal: Principal) -> bool:
    try:
        socket.slot.shown(principal)
    except LimitExceeded:
        return True
    return False


@pytest.mark.parametrize(("sessions", "most"), [(None, 3), (2, 3), (5, 6)])
async def test_a_principal_has_as_many_sockets_as_sessions_and_some_to_ask_by(
    sessions: int | None, most: int, limiter: ConnectionLimiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_limiter, "MAX_STRANGERS", 10)
    monkeypatch.setattr(connection_limiter, "MAX_SESSIONS_OF_ONE", 2)
    monkeypatch.setattr(connection_limiter, "MAX_ASKING", 1)
    ann = Principal("ann", limits=Limits(sessions=sessions))
    sockets = [Socket(limiter) for _ in range(most)]
    assert not any(is_refused(each, ann) for each in sockets * 2)
    further = Socket(limiter)
    assert is_refused(further, ann)
    assert further.slot.is_strangers
    assert not further.cut
    assert limiter.traffic.refused == 1
    assert not is_refused(further, Principal("bob"))
    sockets[0].slot.leave()
    sockets[0].slot.leave()
    assert not is_refused(sockets[0], ann), "it has no place any more"
    assert not is_refused(further, ann), "a connection may ask for one after the other"
    assert is_refused(Socket(limiter), ann)
    assert not is_refused(sockets[1], Principal("bob"))
    assert not is_refused(Socket(limiter), ann)


async def test_brokers_and_those_who_show_nothing_are_held_to_no_number(
    limiter: ConnectionLimiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_limiter, "MAX_SESSIONS_OF_ONE", 1)
    monkeypatch.setattr(connection_limiter, "MAX_ASKING", 0)
    ends = [Socket(limiter, ANYONE, is_broker=number % 2 == 0) for number in range(10)]
    assert not any(each.slot.is_strangers for each in ends)


# --- room ---


@pytest.mark.parametrize(("size", "is_counted"), [(SIZE - 2, 0), (SIZE - 1, 0), (SIZE, 1)])
async def test_what_is_no_larger_than_a_greeting_needs_no_room(
    size: int, is_counted: int, limiter: ConnectionLimiter
) -> None:
    assert all(Socket(limiter, "ann").claim(size) for _ in range(2))
    assert Socket(limiter, "ann").claim(size) == (not is_counted)
    assert limiter.size == is_counted * 2 * SIZE


async def test_beyond_its_share_a_principal_waits_in_turn(limiter: ConnectionLimiter) -> None:
    ann = [Socket(limiter, "ann") for _ in range(5)]
    assert [each.claim() for each in ann] == [True, True, False, False, True]
    assert [bool(each.cut) for each in ann] == [False] * 4 + [True]
    assert "MAX_WAITING" in ann[4].cut
    assert Socket(limiter, "bob").claim()
    ann[0].claim(0)
    assert [each.went_on for each in ann] == [0, 0, 1, 0, 0]
    assert not ann[0].claim(), "it does not overtake"
    ann[1].slot.leave()
    ann[2].slot.release()
    assert [each.went_on for each in ann] == [1, 0, 1, 1, 0]
    assert limiter.size == 3 * SIZE


async def test_who_leaves_while_it_waits_is_told_and_takes_no_room(
    limiter: ConnectionLimiter,
) -> None:
    ann = [Socket(limiter, "ann") for _ in range(3)]
    assert [each.claim() for each in ann] == [True, True, False]
    ann[2].slot.leave()
    assert ann[2].went_on == 1
    ann[0].slot.leave()
    ann[1].slot.leave()
    assert limiter.size == 0


async def test_who_need_not_show_a_principal_has_a_share_of_its_own(
    limiter: ConnectionLimiter,
) -> None:
    ends = [Socket(limiter, ANYONE) for _ in range(3)]
    assert [each.claim(2 * SIZE) for each in ends] == [True] * 3


async def test_where_all_room_is_taken_the_one_with_the_most_gives_up_its_oldest(
    limiter: ConnectionLimiter,
) -> None:
    broker = Socket(limiter, is_broker=True)
    one = Socket(limiter, "one")
    most = [Socket(limiter, "most") for _ in range(2)]
    last = Socket(limiter, "last")
    for each in (broker, one, *most):
        assert each.claim(2 * SIZE if each is broker else SIZE)
    assert last.claim()
    assert limiter.size == 6 * SIZE
    assert Socket(limiter, "newcomer").claim()
    assert [bool(each.cut) for each in (broker, one, *most, last)] == [0, 0, 1, 0, 0]
    assert "INTAKE_BYTES" in most[0].cut
    assert limiter.traffic.refused == 1


async def test_what_began_a_moment_ago_is_let_go_on(
    limiter: ConnectionLimiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_limiter, "YIELD_S", WAIT_S)
    ends = [Socket(limiter, ANYONE) for _ in range(4)]
    assert [each.claim(2 * SIZE) for each in ends] == [True] * 4
    assert [bool(each.cut) for each in ends] == [False] * 3 + [True]


async def test_what_is_worked_on_has_room_until_that_is_done(limiter: ConnectionLimiter) -> None:
    ends = [Socket(limiter, ANYONE) for _ in range(4)]
    for each in ends[:3]:
        assert each.claim(2 * SIZE)
        each.slot.whole()
    assert ends[3].claim()
    assert ends[3].cut, "there is nobody else to give up"
    ends[0].slot.leave()
    assert limiter.size == 6 * SIZE
    ends[0].slot.release()
    ends[0].slot.release()
    assert limiter.size == 4 * SIZE


async def test_a_holder_is_forgotten_with_its_last_socket(limiter: ConnectionLimiter) -> None:
    one, other = Socket(limiter, "ann"), Socket(limiter, "ann")
    assert len(limiter.holders) == 1
    one.slot.shown(Principal("bob"))
    assert set(limiter.holders) == {"ann", "bob"}
    one.slot.leave()
    other.slot.leave()
    del one, other
    assert len(limiter.holders) == 0
