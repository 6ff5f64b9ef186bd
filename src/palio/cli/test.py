"""`palio test`: a verdict on every event, with the reason where it is no."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from palio.cli.inputs import bindings, check_bindings, events
from palio.cli.quoting import show_hints
from palio.cli.reporting import show
from palio.language.parsing import parse_filter

__all__ = ["test"]


def test(text: str, source: str, parameters: Sequence[str], *, as_json: bool) -> int:
    """Print a verdict an event; 0 if one of them matches, as `grep` has it."""
    filter = parse_filter(text)
    values = bindings(parameters)
    check_bindings(filter, values)
    filter.bind(values)  # refuses a missing or unusable value before any event is read
    if not as_json:
        show_hints(text)
    matched, verdicts = False, list[dict[str, Any]]()
    for line, event in events(source):
        explanation = filter.explain(event, values)
        matched |= explanation.matched
        if as_json:
            verdicts.append({"line": line, **msgspec.to_builtins(explanation)})
        else:
            show("match" if explanation.matched else str(explanation))
    if as_json:
        show({"filter": str(filter), "matched": matched, "events": verdicts})
    return 0 if matched else 1
