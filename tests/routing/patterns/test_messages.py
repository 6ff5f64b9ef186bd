"""The table at the head of the messages names each of them."""

from __future__ import annotations

from typing import get_args

from palio.routing.patterns import messages
from palio.routing.patterns.messages import PatternControl


def test_every_message_has_its_line_in_the_table() -> None:
    assert messages.__doc__ is not None
    named = [line.split("`")[1] for line in messages.__doc__.splitlines() if line.startswith("| `")]
    assert sorted(named) == sorted(each.__name__ for each in get_args(PatternControl))
