"""What others say that a neighbour said is held until that one speaks, or is gone."""

from __future__ import annotations

from palio.node.hearsay import Hearsay
from palio.node.messages import Fact


def test_it_is_answered_up_to_where_the_origin_has_spoken() -> None:
    hearsay = Hearsay()
    for source, version in (("c", 5), ("d", 6), ("c", 7)):
        assert hearsay.hold(source, Fact("a", version, "links"))
    assert hearsay.answered("a", 6) == {"c": 5, "d": 6}
    assert hearsay.answered("a", 6) == {}
    assert hearsay.answered("a", 7) == {"c": 7}


def test_it_is_believed_when_the_origin_is_gone_in_the_order_of_each_source() -> None:
    hearsay = Hearsay()
    facts = [Fact("a", version, "links") for version in (5, 6)]
    for source in ("c", "d"):
        for fact in facts:
            hearsay.hold(source, fact)
    assert hearsay.believed("d") == {}
    assert hearsay.believed("a") == {"c": facts}
    assert hearsay.believed("a") == {}
