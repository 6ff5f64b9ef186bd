from __future__ import annotations

import pytest

from palio.errors import LimitExceeded
from palio.node.authority import ANYONE, Limits, Principal
from palio.protocol.limits import MAX_GREETING_BYTES
from palio.server import places as places_room
from palio.server.counters import Traffic
from palio.server.places import Places, SocketPlace
from tests.server.fronts import WAIT_S
from tests.server.helpers import until

SIZE = MAX_GREETING_BYTES + 1
"""The least that needs room."""


class Socket:
    """A socket that is held, and what becomes of it."""

    def __init__(self, places: Places, principal: str = "", *, is_broker: bool = False) -> None:
        self.place: SocketPlace = places.take(WAIT_S)
        self.cut = ""
        self.is_let_in = self.place.hold(self._cut)
        self.went_on = 0
        if principal or is_broker:
            self.place.shown(None if is_broker else Principal(principal))

    def _cut(self, reason: str) -> None:
        self.cut = reason

    def claim(self, size: int = SIZE) -> bool:
        """Whether it does not wait."""
        return self.place.claim(size, self._went_on)

    def _went_on(self) -> None:
        self.went_on += 1


@pytest.fixture
async def places(monkeypatch: pytest.MonkeyPatch) -> Places:
    """Room for two messages of each principal and for six in all; one of each waits."""
    monkeypatch.setattr(places_room, "SHARE_BYTES", 2 * SIZE)
    monkeypatch.setattr(places_room, "INTAKE_BYTES", 6 * SIZE)
    monkeypatch.setattr(places_room, "MAX_WAITING", 2)
    monkeypatch.setattr(places_room, "YIELD_S", 0.0)
    monkeypatch.setattr(places_room, "MAX_STRANGERS", 3)
    monkeypatch.setattr(places_room, "STRANGER_BYTES", 100)
    return Places(10, Traffic())


# --- strangers ---


async def test_beyond_the_most_strangers_the_oldest_gives_up_its_place(places: Places) -> None:
    strangers = [Socket(places) for _ in range(5)]
    assert [bool(each.cut) for each in strangers] == [True, True, False, False, False]
    assert all(each.is_let_in for each in strangers)
    assert (places.taken, places.traffic.refused) == (3, 2)


async def test_who_has_shown_a_principal_keeps_the_place(places: Places) -> None:
    known = [Socket(places, "ann") for _ in range(10)]
    stranger = Socket(places)
    assert not stranger.is_let_in
    assert not any(each.cut for each in known)
    known[0].place.leave()
    known[0].place.leave()
    stranger = Socket(places)
    assert stranger.is_let_in
    assert not Socket(places).cut
    assert "limits.connections" in stranger.cut
    assert (places.taken, places.traffic.refused) == (10, 2)


async def test_bytes_of_strangers_are_taken_from_the_largest(places: Places) -> None:
    small, large, newest = (Socket(places) for _ in range(3))
    small.place.keep(10)
    large.place.keep(50)
    large.place.keep(70)
    newest.place.keep(20)
    assert not any(each.cut for each in (small, large, newest))
    small.place.keep(11)
    assert large.cut
    assert not small.cut
    assert places.stranger_bytes == 31
    newest.place.shown(Principal("ann"))
    newest.place.keep(1_000)
    assert places.stranger_bytes == 11
    small.place.leave()
    assert places.stranger_bytes == 0


async def test_a_handshake_that_does_not_end_gives_its_place_back() -> None:
    places = Places(2, Traffic())
    held, lost = places.take(0.01), places.take(0.01)
    held.hold(print)
    await until(lambda: places.taken == 1)
    lost.leave()
    assert not lost.hold(print)
    assert places.taken == 1
    held.leave()
    assert places.taken == 0


# --- principals ---


def is_refused(socket: Socket, principal: Principal) -> bool:
    try:
        socket.place.shown(principal)
    except LimitExceeded:
        return True
    return False


@pytest.mark.parametrize(("sessions", "most"), [(None, 3), (2, 3), (5, 6)])
async def test_a_principal_has_as_many_sockets_as_sessions_and_some_to_ask_by(
    sessions: int | None, most: int, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places_room, "MAX_STRANGERS", 10)
    monkeypatch.setattr(places_room, "MAX_SESSIONS_OF_ONE", 2)
    monkeypatch.setattr(places_room, "MAX_ASKING", 1)
    ann = Principal("ann", limits=Limits(sessions=sessions))
    sockets = [Socket(places) for _ in range(most)]
    assert not any(is_refused(each, ann) for each in sockets * 2)
    further = Socket(places)
    assert is_refused(further, ann)
    assert further.place.is_strangers
    assert not further.cut
    assert places.traffic.refused == 1
    assert not is_refused(further, Principal("bob"))
    sockets[0].place.leave()
    sockets[0].place.leave()
    assert not is_refused(sockets[0], ann), "it has no place any more"
    assert not is_refused(further, ann), "a connection may ask for one after the other"
    assert is_refused(Socket(places), ann)
    assert not is_refused(sockets[1], Principal("bob"))
    assert not is_refused(Socket(places), ann)


async def test_brokers_and_those_who_show_nothing_are_held_to_no_number(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places_room, "MAX_SESSIONS_OF_ONE", 1)
    monkeypatch.setattr(places_room, "MAX_ASKING", 0)
    ends = [Socket(places, ANYONE, is_broker=number % 2 == 0) for number in range(10)]
    assert not any(each.place.is_strangers for each in ends)


# --- room ---


@pytest.mark.parametrize(("size", "is_counted"), [(SIZE - 2, 0), (SIZE - 1, 0), (SIZE, 1)])
async def test_what_is_no_larger_than_a_greeting_needs_no_room(
    size: int, is_counted: int, places: Places
) -> None:
    assert all(Socket(places, "ann").claim(size) for _ in range(2))
    assert Socket(places, "ann").claim(size) == (not is_counted)
    assert places.size == is_counted * 2 * SIZE


async def test_beyond_its_share_a_principal_waits_in_turn(places: Places) -> None:
    ann = [Socket(places, "ann") for _ in range(5)]
    assert [each.claim() for each in ann] == [True, True, False, False, True]
    assert [bool(each.cut) for each in ann] == [False] * 4 + [True]
    assert "MAX_WAITING" in ann[4].cut
    assert Socket(places, "bob").claim()
    ann[0].claim(0)
    assert [each.went_on for each in ann] == [0, 0, 1, 0, 0]
    assert not ann[0].claim(), "it does not overtake"
    ann[1].place.leave()
    ann[2].place.release()
    assert [each.went_on for each in ann] == [1, 0, 1, 1, 0]
    assert places.size == 3 * SIZE


async def test_who_leaves_while_it_waits_is_told_and_takes_no_room(places: Places) -> None:
    ann = [Socket(places, "ann") for _ in range(3)]
    assert [each.claim() for each in ann] == [True, True, False]
    ann[2].place.leave()
    assert ann[2].went_on == 1
    ann[0].place.leave()
    ann[1].place.leave()
    assert places.size == 0


async def test_who_need_not_show_a_principal_has_a_share_of_its_own(places: Places) -> None:
    ends = [Socket(places, ANYONE) for _ in range(3)]
    assert [each.claim(2 * SIZE) for each in ends] == [True] * 3


async def test_where_all_room_is_taken_the_one_with_the_most_gives_up_its_oldest(
    places: Places,
) -> None:
    broker = Socket(places, is_broker=True)
    one = Socket(places, "one")
    most = [Socket(places, "most") for _ in range(2)]
    last = Socket(places, "last")
    for each in (broker, one, *most):
        assert each.claim(2 * SIZE if each is broker else SIZE)
    assert last.claim()
    assert places.size == 6 * SIZE
    assert Socket(places, "newcomer").claim()
    assert [bool(each.cut) for each in (broker, one, *most, last)] == [0, 0, 1, 0, 0]
    assert "INTAKE_BYTES" in most[0].cut
    assert places.traffic.refused == 1


async def test_what_began_a_moment_ago_is_let_go_on(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places_room, "YIELD_S", WAIT_S)
    ends = [Socket(places, ANYONE) for _ in range(4)]
    assert [each.claim(2 * SIZE) for each in ends] == [True] * 4
    assert [bool(each.cut) for each in ends] == [False] * 3 + [True]


async def test_what_is_worked_on_has_room_until_that_is_done(places: Places) -> None:
    ends = [Socket(places, ANYONE) for _ in range(4)]
    for each in ends[:3]:
        assert each.claim(2 * SIZE)
        each.place.whole()
    assert ends[3].claim()
    assert ends[3].cut, "there is nobody else to give up"
    ends[0].place.leave()
    assert places.size == 6 * SIZE
    ends[0].place.release()
    ends[0].place.release()
    assert places.size == 4 * SIZE


async def test_a_holder_is_forgotten_with_its_last_socket(places: Places) -> None:
    one, other = Socket(places, "ann"), Socket(places, "ann")
    assert len(places.holders) == 1
    one.place.shown(Principal("bob"))
    assert set(places.holders) == {"ann", "bob"}
    one.place.leave()
    other.place.leave()
    del one, other
    assert len(places.holders) == 0
