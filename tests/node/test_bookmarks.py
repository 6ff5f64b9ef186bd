"""How much of bookmarks is kept."""

from __future__ import annotations

import pytest

from palio.node import bookmarks as room
from palio.node.bookmarks import Bookmarks


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MAX_OWN_BOOKMARKS_BYTES", 100)
    monkeypatch.setattr(room, "MAX_BOOKMARKS_BYTES", 250)


def test_one_owner_has_room_for_so_much() -> None:
    kept = Bookmarks({"ann/a": bytes(60)})
    assert kept.keep("ann/b", bytes(40))
    assert not kept.keep("ann/b", bytes(41))
    assert not kept.keep("ann/c", bytes(1))
    assert kept.get("ann/b") == bytes(40)
    assert kept.keep("ann/a", bytes(50)), "less than before"
    assert kept.keep("ann/b", bytes(50))
    kept.drop("ann/a")
    assert kept.get("ann/a") == b""
    assert kept.keep("ann/c", bytes(50))


def test_all_owners_have_room_for_so_much_together() -> None:
    kept = Bookmarks({})
    assert kept.keep("ann/a", bytes(100))
    assert kept.keep("bob/a", bytes(100))
    assert not kept.keep("cid/a", bytes(51))
    assert kept.keep("cid/a", bytes(50))
    kept.drop("cid/a")
    kept.drop("nobody/a")
    assert kept.keep("dan/a", bytes(50))


def test_what_was_stored_is_kept_and_counts() -> None:
    kept = Bookmarks({"ann/a": bytes(99), "bob/a": bytes(99)})
    assert not kept.keep("ann/b", bytes(2))
    assert kept.keep("ann/b", bytes(1))
    assert not kept.keep("cid/a", bytes(52))
