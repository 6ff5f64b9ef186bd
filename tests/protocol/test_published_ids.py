from __future__ import annotations

import pytest

from palio.protocol.published_ids import PublishedIds


@pytest.mark.parametrize(("others", "is_known"), [(1, True), (2, False)])
def test_the_newest_ids_are_known(others: int, is_known: bool) -> None:
    ids = PublishedIds(2)
    assert all(ids.first_time(ids.keys("ann", ["a"])))
    assert all(ids.first_time(ids.keys("ann", [f"b{n}" for n in range(others)])))
    assert all(ids.first_time(ids.keys("ann", ["a"]))) == (not is_known)


def test_an_id_is_of_its_publisher_and_may_be_forgotten() -> None:
    ids = PublishedIds()
    keys = ids.keys("ann", ["a", None])
    assert ids.first_time(keys) == [True, True]
    assert all(ids.first_time(ids.keys("bob", ["a"])))
    assert ids.first_time(keys) == [False, True]
    ids.forget(keys)
    assert ids.first_time(keys) == [True, True]
