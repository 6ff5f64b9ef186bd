"""Commands about a filter by itself: `palio test`, `palio explain` and `palio convert`."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

import typer

from palio.cli.application import (
    AsJson,
    FilterText,
    Parameters,
    event_argument,
)
from palio.cli.inputs import bindings, check_bindings, events, names_a_file, text_of
from palio.cli.reporting import print_status, show
from palio.errors import InvalidEvent

if TYPE_CHECKING:
    from palio.model.filters import Filter


Dialect: TypeAlias = Literal["cesql", "cloudevents", "eventbridge"]
"""The filter languages that `palio convert` reads; each has a module of `palio.language`."""


def test(
    filter: FilterText,
    event: Annotated[str, event_argument("A JSON object or JSON lines")] = "-",
    param: Parameters = None,
    as_json: AsJson = False,
) -> int:
    """Show whether events match, and if not why.

    One verdict an event. Nested objects are flattened: {"a": {"b": 1}} has the attribute a.b.
    Ends with 0 if an event matches, 1 if none does, 2 for bad input.
    """
    import msgspec

    from palio.language.parsing import parse_filter

    parsed = parse_filter(filter)
    values = bindings(param)
    check_bindings(parsed, values)
    parsed.bind(values)  # refuses a missing or unusable value before any event is read
    if not as_json:
        _print_hints(filter)
    matched, verdicts = False, list[dict[str, Any]]()
    for line, document in events(event):
        explanation = parsed.explain(document, values)
        matched |= explanation.matched
        if as_json:
            verdicts.append({"line": line, **msgspec.to_builtins(explanation)})
        else:
            show("match" if explanation.matched else str(explanation))
    if as_json:
        show({"filter": str(parsed), "matched": matched, "events": verdicts})
    return 0 if matched else 1


def explain(
    filter: FilterText,
    event: Annotated[
        str | None,
        typer.Argument(
            metavar="EVENT.json|-|TEXT", help="One JSON object, to explain the verdict on it."
        ),
    ] = None,
    param: Parameters = None,
    as_json: AsJson = False,
) -> int:
    """Show what a filter or a pattern means.

    Its alternatives, and what each lets through; with an event, the verdict on it too.
    """
    import msgspec

    from palio.cli.meaning import lines, meaning_of
    from palio.language.parsing import parse
    from palio.model.patterns import Pattern
    from palio.model.printing import show_duration

    parsed = parse(filter)
    values = bindings(param)
    check_bindings(parsed, values)
    steps = parsed.steps if isinstance(parsed, Pattern) else (parsed,)
    verdicts = []
    if event is not None:
        # With an event every parameter must have a value; without one, those that have none stay.
        document = _only_event(event)
        verdicts = [step.explain(document, _values_of(step, values)) for step in steps]
    meanings = [meaning_of(step, values) for step in steps]
    if as_json:
        for meaning, verdict in zip(meanings, verdicts, strict=False):
            meaning["event"] = msgspec.to_builtins(verdict)
        if isinstance(parsed, Pattern):
            seconds = None if parsed.within is None else parsed.within.total_seconds()
            show({"pattern": str(parsed), "within_s": seconds, "steps": meanings})
        else:
            show(meanings[0])
        return 0
    _print_hints(filter)
    if isinstance(parsed, Pattern):
        span = "" if parsed.within is None else f" within {show_duration(parsed.within)}"
        show(f"{parsed}\n  a pattern of {len(steps)} steps{span}")
    for number, meaning in enumerate(meanings, start=1):
        if isinstance(parsed, Pattern):
            show(f"\nstep {number}")
        show("\n".join(lines(meaning)))
        if verdicts:
            show(f"\nthis event: {verdicts[number - 1]}")
    return 0


def convert(
    dialect: Annotated[
        Dialect, typer.Option("--dialect", help="The language that the filter is written in.")
    ],
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE|-|TEXT",
            help="A file, standard input, or the text itself.",
            show_default=False,
        ),
    ] = "-",
    as_json: AsJson = False,
) -> int:
    """Rewrite a filter of another language.

    Prints its canonical text in Palio's own.
    """
    if dialect == "cesql":
        is_text = source != "-" and not names_a_file(source)
    else:
        is_text = source.lstrip().startswith(("{", "["))
    text = text_of(source, is_text=is_text)
    filter: Filter = import_module(f"palio.language.{dialect}").loads(text)
    document = {"dialect": dialect, "filter": str(filter), "attributes": sorted(filter.attributes)}
    show(document if as_json else str(filter))
    return 0


def _only_event(source: str) -> dict[str, Any]:
    listed = [event for _, event in events(source)]
    if len(listed) > 1:
        raise InvalidEvent(
            f"explain takes one event, and these are {len(listed)}; `palio test` takes many"
        )
    return listed[0]


def _values_of(step: Filter, values: dict[str, Any]) -> dict[str, Any]:
    """The values that a step has parameters for; a missing one is refused."""
    own = {name: value for name, value in values.items() if name in step.variables}
    step.bind(own)
    return own


# --- hints for those who write texts and nothing as other languages do ---

_NOTHING: Final = frozenset({"none", "nil", "undefined"})
"""The words of other languages for an absent value."""


def hints(text: str) -> Iterator[str]:
    """Hints for attributes that look like constants: a name in double quotes behind a comparison,
    or a word that means nothing elsewhere.

    >>> list(hints('symbol = "IBM"'))
    ['"IBM" is an attribute; a text is written \\'IBM\\'']
    >>> list(hints("symbol = 'IBM'"))
    []
    """
    from palio.language.lexer import tokens

    for before, token in pairwise(tokens(text)):
        quoted = text[token.start : token.end]
        if before.type == "COMPARISON" and token.type == "NAME" and quoted.startswith('"'):
            literal = token.value.replace("'", "''")
            yield f"{quoted} is an attribute; a text is written '{literal}'"
        elif before.type == "COMPARISON" and quoted.lower() in _NOTHING:
            yield f"{quoted} is an attribute; that there is no value is written IS NULL"


def _print_hints(text: str) -> None:
    """Print hints where they are not taken for the command's answer."""
    for hint in hints(text):
        print_status(hint)
