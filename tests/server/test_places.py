from __future__ import annotations

from palio.server.places import Places
from tests.server.fronts import WAIT_S
from tests.server.helpers import until


async def test_whoever_is_one_too_many_is_told_and_counted() -> None:
    places = Places(2)
    taken = [places.take(WAIT_S) for _ in range(3)]
    assert [place.is_beyond for place in taken] == [False, False, True]
    assert places.taken == 3
    taken[0].leave()
    taken[0].leave()
    taken[2].leave()
    assert places.taken == 1
    again = places.take(WAIT_S)
    assert not again.is_beyond
    for place in (*taken, again):
        place.leave()
    assert places.taken == 0


async def test_a_handshake_that_does_not_end_gives_its_place_back() -> None:
    places = Places(2)
    held, lost = places.take(0.01), places.take(0.01)
    held.hold()
    await until(lambda: places.taken == 1)
    lost.leave()
    assert places.taken == 1
    held.leave()
    assert places.taken == 0
