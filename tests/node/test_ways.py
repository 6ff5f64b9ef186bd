"""The shortest way counts links that both ends list."""

from __future__ import annotations

from palio.node.ways import ShortestWays


def test_ties_go_to_the_lesser_name_and_one_sided_links_nowhere() -> None:
    said = {
        "b": ("a", "d"),
        "c": ("a", "d"),
        "d": ("b", "c", "e", "f"),
        "e": ("d",),
        "f": (),
    }
    found = ShortestWays("a", ["c", "b"], lambda broker: said.get(broker, ()))
    assert found.hops == {"b": "b", "c": "c", "d": "b", "e": "b"}
    assert [found.way(each) for each in ("c", "e", "f", "a")] == [("c",), ("b", "d", "e"), (), ()]


def test_over_who_is_about_to_go_leads_only_what_has_no_other_way() -> None:
    links = {"a": ("b", "d"), "b": ("a", "c"), "c": ("b", "d", "e"), "d": ("a", "c"), "e": ("c",)}
    ways = ShortestWays("a", ["b", "d"], links.__getitem__, {"b", "c"}.__contains__)
    assert ways.way("b") == ("b",)
    assert ways.way("c") == ("d", "c")
    assert ways.way("e") == ("d", "c", "e")
