from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import pytest
from msgspec import Meta

from palio.errors import InvalidConfiguration, InvalidInput, ParseError
from palio.protocol.limits import MAX_SECONDS
from palio.spark.connection import BrokerLogin
from palio.spark.options import BrokerOptions, Options, Seconds, bindings, read_options
from palio.spark.streaming import StreamOptions


class Some(Options, frozen=True, kw_only=True):
    """Options of every kind."""

    whole_number: Annotated[int, Meta(ge=1)] = 3
    truth: bool = True
    seconds: Seconds = 0.0
    mode: Literal["fast", "slow"] = "fast"


def test_names_have_no_case() -> None:
    options = read_options(Some, {"wholenumber": "7", "TRUTH": "False", "Mode": "SLOW"})
    assert (options.whole_number, options.truth, options.mode) == (7, False, "slow")


def test_what_is_not_given_has_its_default() -> None:
    assert read_options(Some, {}) == Some()


@pytest.mark.parametrize(
    ("text", "value"),
    [("10", 10), ("1.5", 1.5), ("true", True), ("IBM", "IBM"), ('"10"', "10"), ("[1, 2]", (1, 2))],
)
def test_a_parameter_is_json_or_a_text(text: str, value: object) -> None:
    op = "IN" if isinstance(value, tuple) else "="
    assert bindings(f"x {op} :p", {"p": text}) == {"p": value}


@pytest.mark.parametrize(
    ("filter", "given", "message"),
    [
        ("x < :limit", {}, "no option 'param.limit'"),
        ("x < 1", {"limit": "1"}, "has no such parameter"),
    ],
)
def test_parameters_are_those_of_the_filter(
    filter: str, given: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidConfiguration, match=message):
        bindings(filter, given)


def test_a_filter_that_is_none_is_refused_with_its_place() -> None:
    with pytest.raises(ParseError, match="column 4"):
        bindings("x <", {})


@pytest.mark.parametrize("text", ["x", "0", "-1", "1.5"])
def test_a_number_is_whole_and_not_too_small(text: str) -> None:
    with pytest.raises(InvalidConfiguration, match=f"'wholeNumber' is '{text}': Expected `int`"):
        read_options(Some, {"wholeNumber": text})


@pytest.mark.parametrize("text", ["x", "0", "-1", "inf", "nan", "1e308", "315360001"])
def test_seconds_are_above_nothing(text: str) -> None:
    with pytest.raises(InvalidConfiguration, match=f"'seconds' is '{text}': Expected `float`"):
        read_options(Some, {"seconds": text})


def test_seconds_go_up_to_ten_years() -> None:
    assert read_options(Some, {"seconds": "315360000"}).seconds == MAX_SECONDS


@pytest.mark.parametrize("name", ["a/b", "..", "a\nb", " "])
def test_a_client_has_a_name(name: str) -> None:
    options = read_options(StreamOptions, {"url": "palio://b", "durable": "d", "client": name})
    with pytest.raises(InvalidInput, match="option 'client': a client cannot be called"):
        options.login("client")


def test_a_truth_is_true_or_false() -> None:
    with pytest.raises(InvalidConfiguration, match="'truth' is 'maybe': Expected `bool`"):
        read_options(Some, {"truth": "maybe"})


@pytest.mark.parametrize("name", ["urk", "param.p", "url.x"])
def test_an_unknown_option_is_refused(name: str) -> None:
    with pytest.raises(InvalidConfiguration, match=f"'{name}' is 'x': there is no such key"):
        read_options(BrokerOptions, {"url": "palio://x", name: "x"})


def test_parameters_are_options_only_where_there_is_a_filter() -> None:
    given = {"url": "palio://x", "durable": "d", "param.P": "1"}
    assert read_options(StreamOptions, given).param == {"p": "1"}


def test_what_must_be_there_is_named() -> None:
    with pytest.raises(InvalidConfiguration, match="'url' is missing"):
        read_options(BrokerOptions, {})


def test_a_door_takes_its_token_from_an_option_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALIO_TOKEN", "from-environment")
    given = {"url": "palio://x", "durable": "d", "client": "me"}

    def login(**more: str) -> BrokerLogin:
        return read_options(StreamOptions, given | more).login("client")

    assert login() == BrokerLogin("palio://x", "me", "from-environment")
    assert login(token="given").token == "given"
    (tmp_path / "token").write_text("from-file\n")
    (tmp_path / "token").chmod(0o600)
    assert login(tokenfile=str(tmp_path / "token")).token == "from-file"
    (tmp_path / "token").chmod(0o644)
    with pytest.raises(InvalidConfiguration, match="may be read by others"):
        login(tokenfile=str(tmp_path / "token"))
    with pytest.raises(InvalidConfiguration, match="tokenFile"):
        login(tokenfile=str(tmp_path / "none"))


def test_a_token_is_not_printed() -> None:
    assert "secret" not in repr(
        read_options(BrokerOptions, {"url": "palio://x", "token": "secret"})
    )
