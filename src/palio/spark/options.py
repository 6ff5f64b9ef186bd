"""The options of data sources, read into structs: a wrong one is refused by its name.

Spark hands options over as texts, and does not keep the case of their names. Those with a dot, such
as `param.limit`, are a table.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar, get_origin

import msgspec
from msgspec import Meta

from palio import files
from palio.config import bare, explain
from palio.errors import InvalidConfiguration, UnsafeFile
from palio.language.parsing import parse_filter
from palio.protocol.limits import MAX_SECONDS
from palio.protocol.names import check_name
from palio.spark.connection import TIMEOUT_S, BrokerLogin

TOKEN_VARIABLE: Final = "PALIO_TOKEN"

Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=MAX_SECONDS)]

Address: TypeAlias = Annotated[str, Meta(min_length=1)]


class Options(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """The options of a source or a sink."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"  # there may be a token among them


class BrokerOptions(Options, frozen=True, kw_only=True):
    """The options by which a broker is reached."""

    url: Address
    token: str = ""
    token_file: str = ""
    ca: str = ""
    timeout: Seconds = TIMEOUT_S

    def login(self, option: str) -> BrokerLogin:
        """The address of the broker; `option` has the client's name."""
        name = check_name(getattr(self, option), f"option {option!r}: a client")
        return BrokerLogin(self.url, name, self.token or default_token(), self.ca)


def default_token() -> str:
    """The token of a client that is given none."""
    return os.environ.get(TOKEN_VARIABLE, "")


Kind = TypeVar("Kind", bound=Options)


def read_options(kind: type[Kind], given: Mapping[str, str]) -> Kind:
    """Options as a struct; `InvalidConfiguration` names one that does not fit.

    A token comes from `token`, or the file that `tokenFile` names.

    >>> read_options(BrokerOptions, {"URL": "palio://b", "timeout": "2.5"}).timeout
    2.5
    """
    fields = {field.encode_name.lower(): field for field in msgspec.structs.fields(kind)}
    values: dict[str, Any] = {}
    for option, text in given.items():
        name, dot, key = option.lower().partition(".")
        field = fields.get(name)
        kind_of = None if field is None else get_origin(bare(field.type))
        if field is None or bool(dot) != (kind_of is dict):
            values[option] = text
        elif dot:
            values.setdefault(field.encode_name, {})[key] = text
        else:
            values[field.encode_name] = text.lower() if kind_of is Literal else text
    if values.get("tokenFile") and "tokenfile" in fields:
        values["token"] = _token_in(values["tokenFile"])
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _refused(*explain(error, kind), values) from None


def _refused(option: str, problem: str, values: Mapping[str, Any]) -> InvalidConfiguration:
    missing = re.search(r"missing required field `(.+)`", problem)
    if missing is not None:
        return InvalidConfiguration(f"option {missing[1]!r} is missing")
    value = values.get(option, "")
    return InvalidConfiguration(f"option {option!r} is {value!r:.200}: {problem}")


def _token_in(file: str) -> str:
    try:
        return files.read_secret(Path(file), "the token").decode().strip()
    except (OSError, UnicodeDecodeError, UnsafeFile) as error:
        raise InvalidConfiguration(f"option 'tokenFile': {error}") from None


def bindings(filter: str, param: Mapping[str, str]) -> dict[str, Any]:
    """The values of a filter's parameters, which are JSON, or else texts as they are.

    >>> bindings("price < :Limit", {"limit": "10"})
    {'Limit': 10}
    """
    names = sorted(parse_filter(filter).variables)
    unknown = param.keys() - {name.lower() for name in names}
    if unknown:
        raise InvalidConfiguration(
            f"option 'param.{min(unknown)}': the filter has no such parameter"
        )
    for name in names:
        if name.lower() not in param:
            raise InvalidConfiguration(
                f"the filter has a parameter :{name}, and there is no option 'param.{name}'"
            )
    return {name: _value(param[name.lower()]) for name in names}


def _value(text: str) -> Any:
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    return tuple(value) if isinstance(value, list) else value
