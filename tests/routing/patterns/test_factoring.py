"""The table of available patterns, and runs of steps with one provider."""

from __future__ import annotations

import pytest

import palio
from palio.language.parsing import parse_advertisement
from palio.model.advertisements import Advertisement
from palio.model.patterns import Pattern
from palio.routing.patterns.providers import differences, factored
from tests.routing.helpers import ALICE, ONE, TWO, parse

A, B, C = (parse_advertisement(f"{name} IS NOT NULL") for name in "abc")


def runs(text: str, **offers: list[Advertisement]) -> list[tuple[int, str]]:
    found = palio.parse(text)
    assert isinstance(found, Pattern)
    peers = {"one": ONE, "two": TWO, "alice": ALICE}
    factors = factored(found.steps, {peers[name]: each for name, each in offers.items()})
    return [(len(each.steps), "+".join(sorted(p.name for p in each.providers))) for each in factors]


@pytest.mark.parametrize(
    ("offers", "expected"),
    [
        ({"one": [A, B, C]}, [(3, "s1")]),
        ({"one": [A, B], "two": [C]}, [(2, "s1"), (1, "s2")]),
        ({"one": [A, C], "two": [B]}, [(1, "s1"), (1, "s2"), (1, "s1")]),
        ({"one": [A, B, C], "two": [B]}, [(1, "s1"), (1, "s1+s2"), (1, "s1")]),
        ({"one": [A, B], "two": [A, B]}, [(1, "s1+s2"), (1, "s1+s2"), (1, "")]),
        ({"one": [A], "two": [C]}, [(2, "s1"), (1, "s2")]),
        ({"alice": [A, B, C]}, [(3, "alice")]),
        ({}, [(3, "")]),
    ],
)
def test_steps_with_at_most_one_provider_are_one_factor(
    offers: dict[str, list[Advertisement]], expected: list[tuple[int, str]]
) -> None:
    assert runs("a = 1 THEN b = 1 THEN c = 1", **offers) == expected


def test_only_one_provider_is_the_only_provider() -> None:
    (one,) = factored([parse("a = 1")], {ONE: [A], TWO: [B]})
    (both,) = factored([parse("a = 1")], {ONE: [A], TWO: [A]})
    (nobody,) = factored([parse("a = 1")], {})
    assert (one.only_provider, both.only_provider, nobody.only_provider) == (ONE, None, None)


def test_what_changed_between_two_tables() -> None:
    before, after = {ONE: [A, B], TWO: [C]}, {ONE: [B, C], ALICE: [A]}
    assert differences(before, after) == [A, C]
    assert differences(before, before) == []
