from __future__ import annotations

from pathlib import Path

import pytest

from palio.errors import InvalidConfiguration
from palio.spark.plan import read_plan

GOOD = """name = "orders"

[source]
format = "json"
path = "orders.jsonl"

[match]
subscriptions = "wanted.jsonl"

[[sinks]]
of = "matches"
path = "out"
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name in ("orders.jsonl", "wanted.jsonl"):
        (tmp_path / name).write_text("")
    return tmp_path


def write(home: Path, text: str) -> Path:
    path = home / "pipeline.toml"
    path.write_text(text)
    return path


def test_paths_are_seen_from_the_file(home: Path) -> None:
    plan = read_plan(write(home, GOOD + '\n[report]\npath = "/elsewhere"\n'))
    assert plan.source.path == str(home / "orders.jsonl")
    assert plan.match is not None
    assert plan.match.subscriptions == str(home / "wanted.jsonl")
    assert plan.sinks[0].path == str(home / "out")
    assert plan.report is not None
    assert plan.report.path == "/elsewhere"


def test_addresses_are_no_paths(home: Path) -> None:
    text = GOOD.replace('"out"', '"s3://bucket/out"').replace("orders.jsonl", "orders*.jsonl")
    assert read_plan(write(home, text)).sinks[0].path == "s3://bucket/out"


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ('name = "orders"', "", "name"),
        ('format = "json"', 'formt = "json"', ":4: source.formt: .* did you mean format?"),
        ('of = "matches"', 'of = "match"', ":11: sinks.0..of: .*one of events, matches, sequences"),
        ('path = "out"', "path = 3", ":12: sinks.0..path: Expected `str`, got `int`"),
        ("orders.jsonl", "none.jsonl", ":5: source.path: .*none.jsonl' is not there"),
        ("wanted.jsonl", "none.jsonl", ":8: match.subscriptions: .*none.jsonl' is not there"),
        ('of = "matches"', 'of = "sequences"', r":11: sinks.0..of: .* no table \[sequences\]"),
        ('path = "out"', "", ":10: sinks.0..path: parquet is written to a path"),
        ('path = "out"', 'path = "."', ":12: sinks.0..path: .*exists already"),
        ('name = "orders"', 'name = "o"\ntrigger = "1s"', ":2: trigger: this is for streams"),
        ("[source]", "[source]\nstream = true", ":3: source.schema: a stream of json needs"),
        ("[source]", "[source]\nstream = true", "pipeline.toml: checkpoint: a stream needs one"),
        ("[match]", '[match]\nhow = "all"', ":8: match.how: .*one of pairs, any, count, route"),
        ("[source]", "[source", "pipeline.toml: "),
    ],
)
def test_what_is_wrong_is_told_with_its_key_and_line(
    home: Path, before: str, after: str, told: str
) -> None:
    assert before in GOOD
    file = write(home, GOOD.replace(before, after))
    with pytest.raises(InvalidConfiguration, match=told):
        read_plan(file)


def test_history_has_no_watermark(home: Path) -> None:
    table = '[sequences]\nby = ["k"]\ntime = "t"\nwatermark = "1s"\npatterns = []\n'
    with pytest.raises(
        InvalidConfiguration, match=r":17: sequences\.watermark: this is for streams"
    ):
        read_plan(write(home, f"{GOOD}\n{table}"))


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("a = 1", "it is a filter; a pattern has a THEN"),
        ("a = 1 THEN b <", "ends too soon"),
        ("a = 1 THEN b < :c", "c"),
    ],
)
def test_patterns_are_read(home: Path, pattern: str, told: str) -> None:
    table = '[sequences]\nby = ["k"]\ntime = "t"\n[[sequences.patterns]]\nid = 1\npattern = '
    file = write(home, f'{GOOD}\n{table}"{pattern}"\n')
    with pytest.raises(
        InvalidConfiguration, match=rf":19: sequences.patterns\[0\].pattern: .*{told}"
    ):
        read_plan(file)


def test_all_that_is_wrong_is_told_at_once(home: Path) -> None:
    file = write(home, GOOD.replace(".jsonl", ".none"))
    with pytest.raises(InvalidConfiguration) as error:
        read_plan(file)
    assert len(str(error.value).splitlines()) == 2


STREAM = """name = "s"
checkpoint = "c"
trigger = "available now"

[source]
format = "palio"
stream = true
options = { url = "palio://localhost", durable = "d" }

[[sinks]]
of = "events"
path = "out"
"""


def test_a_stream_may_write_to_what_is_there(home: Path) -> None:
    (home / "out").mkdir()
    assert read_plan(write(home, STREAM)).trigger == "available now"


@pytest.mark.parametrize(
    ("match", "told"),
    [
        ('subscriptions = "palio://host:port"', ":12: match.subscriptions: 'palio://host:port' is"),
        (
            'subscriptions = "palio://host"\nrefresh = "often"',
            ":13: match.refresh: 'often' is no ti",
        ),
    ],
)
def test_subscriptions_may_be_a_brokers(home: Path, match: str, told: str) -> None:
    table = '[match]\nsubscriptions = "palio://host"\nrefresh = "5s"\n'
    assert read_plan(write(home, STREAM + table)).match is not None
    with pytest.raises(InvalidConfiguration, match=told):
        read_plan(write(home, STREAM.replace("[[sinks]]", f"\n[match]\n{match}\n[[sinks]]")))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"stream = true": ""}, "match.refresh: this is for streams"),
        ({'"c"': '"s3://bucket/c"'}, "match.refresh: workers read what is in force from"),
    ],
)
def test_what_refreshes_is_a_stream_with_a_directory(
    home: Path, changes: dict[str, str], told: str
) -> None:
    text = STREAM + '[match]\nsubscriptions = "palio://host"\nrefresh = "5s"\n'
    for before, after in changes.items():
        text = text.replace(before, after)
    with pytest.raises(InvalidConfiguration, match=told):
        read_plan(write(home, text))


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("available now", "soon", ":3: trigger: 'soon' is no time.*'available now'"),
        ("[source]", '[match]\nhow = "count"\nsubscriptions = "wanted.jsonl"\n[source]', "no end"),
        (
            "[source]",
            '[sequences]\nby = []\ntime = "t"\npatterns = []\n[source]',
            ":5: sequences.watermark: a stream needs one",
        ),
        (
            "[source]",
            '[sequences]\nby = []\ntime = "t"\nwatermark = "1 day"\npatterns = []\n[source]',
            ":8: sequences.watermark: '1 day' is no time",
        ),
        (
            "[source]",
            (
                '[sequences]\nby = []\ntime = "t"\nwatermark = "1s"\n'
                "patterns = [{ id = 1, pattern = 'a = 1 THEN b = 1' }]\n[source]"
            ),
            ":9: .* a stream's pattern needs a WITHIN",
        ),
        ("[[sinks]]", '[[sinks]]\nof = "events"\npath = "o"\n[[sinks]]', "one query takes a dur"),
    ],
)
def test_what_a_stream_cannot_do_is_told(home: Path, before: str, after: str, told: str) -> None:
    file = write(home, STREAM.replace(before, after, 1))
    with pytest.raises(InvalidConfiguration, match=told):
        read_plan(file)
