"""What others say that a neighbour said is held until that one speaks, or is gone."""

from __future__ import annotations

from palio.node.hearsay import Hearsay
from palio.node.limits import MAX_FACT_CHARS, MAX_HEARSAY_CHARS
from palio.protocol.messages import Fact


def test_it_is_answered_up_to_where_the_origin_has_spoken() -> None:
    hearsay = Hearsay()
    for source, version in (("c", 5), ("d", 6), ("c", 7)):
        assert hearsay.hold(source, Fact("a", version, "links"))
    assert hearsay.answered("a", 6) == {"c": (5,), "d": (6,)}
    assert hearsay.answered("a", 6) == {}
    assert hearsay.answered("a", 7) == {"c": (7,)}


def test_it_is_believed_when_the_origin_is_gone_in_the_order_of_each_source() -> None:
    hearsay = Hearsay()
    facts = [Fact("a", version, "links") for version in (5, 6)]
    for source in ("c", "d"):
        for fact in facts:
            hearsay.hold(source, fact)
    assert hearsay.believed("d") == {}
    assert hearsay.believed("a") == {"c": facts}
    assert hearsay.believed("a") == {}


def test_what_one_source_passes_on_takes_so_much_memory_and_others_are_held_beside_it() -> None:
    hearsay = Hearsay()
    large = Fact("a", 1, "o/s", filter="x" * (MAX_FACT_CHARS - 3))
    fit = MAX_HEARSAY_CHARS // MAX_FACT_CHARS
    for _ in range(2):  # what was answered for, or was of a source that is gone, takes none
        assert [hearsay.hold("c", large) for _ in range(fit + 1)] == [True] * fit + [False]
        assert hearsay.hold("d", large)
        assert hearsay.answered("a", 1) == {"c": (1,), "d": (1,)}
    assert hearsay.hold("c", large)
    assert hearsay.believed("c") == {}
    assert [hearsay.hold("c", large) for _ in range(fit + 1)] == [True] * fit + [False]
    assert len(hearsay.believed("a")["c"]) == fit
    assert hearsay.hold("c", large)
