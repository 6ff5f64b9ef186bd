from __future__ import annotations

from pathlib import Path

import pytest

from palio.errors import InvalidConfiguration, InvalidInput, ParseError
from palio.protocol.limits import MAX_SECONDS
from palio.spark.connection import Door
from palio.spark.options import Options


def test_names_have_no_case() -> None:
    options = Options({"maxeventsperbatch": "7", "FAILONDATALOSS": "False"})
    assert options.number("maxEventsPerBatch", 0) == 7
    assert options.truth("failOnDataLoss", default=True) is False


def test_what_is_not_given_has_its_default() -> None:
    options = Options({})
    assert options.number("n", 3) == 3
    assert options.seconds("s", 0.0) == 0.0
    assert options.truth("t", default=True)
    assert options.text("x", "") == ""
    assert str(options.filter) == "TRUE"
    assert options.values == {}


@pytest.mark.parametrize(
    ("text", "value"),
    [("10", 10), ("1.5", 1.5), ("true", True), ("IBM", "IBM"), ('"10"', "10"), ("[1, 2]", (1, 2))],
)
def test_a_parameter_is_json_or_a_text(text: str, value: object) -> None:
    op = "IN" if isinstance(value, tuple) else "="
    assert Options({"filter": f"x {op} :p", "param.p": text}).values == {"p": value}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"filter": "x < :limit"}, "no option 'param.limit'"),
        ({"filter": "x < 1", "param.limit": "1"}, "has no such parameter"),
    ],
)
def test_parameters_are_those_of_the_filter(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfiguration, match=message):
        _ = Options(given).values


def test_a_filter_that_is_none_is_refused_with_its_place() -> None:
    with pytest.raises(ParseError, match="column 4"):
        _ = Options({"filter": "x <"}).filter


@pytest.mark.parametrize("text", ["x", "0", "-1", "1.5"])
def test_a_number_is_whole_and_not_too_small(text: str) -> None:
    with pytest.raises(InvalidConfiguration, match="at least 1"):
        Options({"n": text}).number("n", 1)


@pytest.mark.parametrize("text", ["x", "0", "-1", "inf", "nan", "1e308", "315360001"])
def test_seconds_are_above_nothing(text: str) -> None:
    with pytest.raises(InvalidConfiguration, match="seconds, above 0"):
        Options({"s": text}).seconds("s", 1.0)


def test_seconds_go_up_to_ten_years() -> None:
    assert Options({"s": "315360000"}).seconds("s", 1.0) == MAX_SECONDS


@pytest.mark.parametrize("name", ["a/b", "..", "a\nb", " "])
def test_who_knocks_has_a_name(name: str) -> None:
    with pytest.raises(InvalidInput, match="option 'client': a client cannot be called"):
        Options({"url": "palio://b", "client": name}).door("client")


def test_a_truth_is_true_or_false() -> None:
    with pytest.raises(InvalidConfiguration, match="takes true or false"):
        Options({"t": "maybe"}).truth("t", default=True)


def test_an_unknown_option_is_refused() -> None:
    options = Options({"url": "palio://x", "durabel": "d"})
    with pytest.raises(InvalidConfiguration, match="'durabel' is none of those there are: durable"):
        options.check(["url", "durable"])


def test_parameters_are_options_only_where_there_is_a_filter() -> None:
    options = Options({"param.p": "1"})
    options.check(["filter"])
    with pytest.raises(InvalidConfiguration, match="is none of those"):
        options.check(["url"])


def test_what_must_be_there_is_named() -> None:
    with pytest.raises(InvalidConfiguration, match="'url' is missing"):
        Options({}).door("client")


def test_a_door_takes_its_token_from_an_option_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALIO_TOKEN", "from-environment")
    given = {"url": "palio://x", "client": "me"}
    assert Options(given).door("client") == Door("palio://x", "me", "from-environment")
    assert Options({**given, "token": "given"}).door("client").token == "given"
    (tmp_path / "token").write_text("from-file\n")
    (tmp_path / "token").chmod(0o600)
    given["tokenfile"] = str(tmp_path / "token")
    assert Options(given).door("client").token == "from-file"
    (tmp_path / "token").chmod(0o644)
    with pytest.raises(InvalidConfiguration, match="may be read by others"):
        Options(given).door("client")
    given["tokenfile"] = str(tmp_path / "none")
    with pytest.raises(InvalidConfiguration, match="tokenFile"):
        Options(given).door("client")
