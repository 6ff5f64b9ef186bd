"""The options of the data source `palio`, read and checked: a wrong one is refused by its name.

Spark hands options over as texts and does not keep the case of their names.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from palio import files
from palio.errors import InvalidConfiguration, UnsafeFile
from palio.language.parsing import parse_filter
from palio.model.filters import TRUE, Filter
from palio.protocol.limits import MAX_SECONDS
from palio.protocol.names import check_name
from palio.spark.connection import Door

__all__ = ["Options"]

PARAMETER: Final = "param."

TOKEN_VARIABLE: Final = "PALIO_TOKEN"

_TRUTHS: Final = {"true": True, "false": False}


class Options:
    """Options by their names, whatever their case.

    >>> options = Options({"filter": "price < :Limit", "param.limit": "10"})
    >>> str(options.filter), options.values
    ('price < :Limit', {'Limit': 10})
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}

    def check(self, known: Iterable[str]) -> None:
        """Refuse what is none of the names known, which may be a slip of the pen."""
        names = {name.lower() for name in known}
        for name in self._given:
            if name not in names and not (name.startswith(PARAMETER) and "filter" in names):
                listed = ", ".join(sorted(known))
                raise InvalidConfiguration(f"option {name!r} is none of those there are: {listed}")

    def text(self, name: str, default: str | None = None) -> str:
        """A text; without a default it must be there."""
        found = self._given.get(name.lower(), default)
        if not found and default is None:
            raise InvalidConfiguration(f"option {name!r} is missing")
        return found or ""

    def number(self, name: str, default: int, least: int = 1) -> int:
        """A whole number, not below some least one."""
        text = self._given.get(name.lower(), str(default))
        if not text.strip().isdecimal() or int(text) < least:
            raise InvalidConfiguration(
                f"option {name!r} is {text!r}; it takes a number, at least {least}"
            )
        return int(text)

    def seconds(self, name: str, default: float) -> float:
        """A time in seconds, which is above 0 if it is given."""
        text = self._given.get(name.lower())
        if text is None:
            return default
        try:
            seconds = float(text)
        except ValueError:
            seconds = -1.0
        if not 0 < seconds <= MAX_SECONDS:
            raise InvalidConfiguration(
                f"option {name!r} is {text!r}; it takes seconds, above 0 and no more than "
                f"{MAX_SECONDS:.0f} (MAX_SECONDS)"
            )
        return seconds

    def truth(self, name: str, *, default: bool) -> bool:
        """True or false."""
        text = self._given.get(name.lower(), str(default)).lower()
        if text not in _TRUTHS:
            raise InvalidConfiguration(f"option {name!r} is {text!r}; it takes true or false")
        return _TRUTHS[text]

    @property
    def filter(self) -> Filter:
        """The filter, its parameters open; without one, all events."""
        text = self._given.get("filter")
        return TRUE if text is None else parse_filter(text)

    @property
    def values(self) -> dict[str, Any]:
        """The values of the filter's parameters, which are JSON, or else texts as they are."""
        found: dict[str, Any] = {}
        for name in sorted(self.filter.variables):
            text = self._given.get(PARAMETER + name.lower())
            if text is None:
                raise InvalidConfiguration(
                    f"the filter has a parameter :{name}, and there is no option 'param.{name}'"
                )
            found[name] = _value(text)
        known = {name.lower() for name in found}
        for option in self._given:
            if option.startswith(PARAMETER) and option.removeprefix(PARAMETER) not in known:
                raise InvalidConfiguration(f"option {option!r}: the filter has no such parameter")
        return found

    def door(self, name: str) -> Door:
        """The address of the broker; `name` is the option with the client's name."""
        token = self.token() or os.environ.get(TOKEN_VARIABLE, "")
        who = check_name(self.text(name, "spark"), f"option {name!r}: a client")
        return Door(self.text("url"), who, token, self.text("ca", ""))

    def token(self) -> str:
        """The token, from `token` or the file that `tokenFile` names; empty without either."""
        file = self.text("tokenFile", "")
        if not file:
            return self.text("token", "")
        try:
            return files.read_secret(Path(file), "the token").decode().strip()
        except (OSError, UnicodeDecodeError, UnsafeFile) as error:
            raise InvalidConfiguration(f"option 'tokenFile': {error}") from None


def _value(text: str) -> Any:
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    return tuple(value) if isinstance(value, list) else value
