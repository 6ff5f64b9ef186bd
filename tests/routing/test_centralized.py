from __future__ import annotations

import pytest

from palio.model.row_parcels import RowParcel
from palio.routing.acyclic import Centralized
from palio.routing.messages import Subscribe
from tests.routing.helpers import ALICE, BOB, ONE, UA, ask, attached


def test_one_server_serves_everybody() -> None:
    server = attached(Centralized("s"), ALICE, BOB)
    assert ask(server, ALICE, Subscribe(0, UA)) == []
    assert list(server.route(BOB, RowParcel("bob", [{"airline": "UA"}]))) == [ALICE]


def test_it_has_no_neighbours() -> None:
    with pytest.raises(ValueError, match="no neighbours"):
        Centralized("s").attach(ONE)
