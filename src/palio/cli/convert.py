"""`palio convert`: filters of other languages in our own."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from palio.cli.inputs import names_a_file, text_of
from palio.cli.reporting import show
from palio.model.filters import Filter

__all__ = ["convert"]

_READERS: Final = {
    "cesql": "palio.language.cesql",
    "cloudevents": "palio.language.cloudevents",
    "eventbridge": "palio.language.eventbridge",
}


def convert(dialect: str, source: str, *, as_json: bool) -> int:
    """Print the canonical text of a filter in another language."""
    if dialect == "cesql":
        is_text = source != "-" and not names_a_file(source)
    else:
        is_text = source.lstrip().startswith(("{", "["))
    text = text_of(source, is_text=is_text)
    filter: Filter = import_module(_READERS[dialect]).loads(text)
    if as_json:
        attributes = sorted(filter.attributes)
        show({"from": dialect, "filter": str(filter), "attributes": attributes})
    else:
        show(str(filter))
    return 0
