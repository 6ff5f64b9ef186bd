"""The examples that are no pipelines, run as they are, on fewer data."""

from __future__ import annotations

import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

import palio
from tests.pages import ROOT, blocks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = ROOT / "examples"


def example(name: str) -> Any:
    """An example as a module."""
    spec = spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shown(text: str) -> dict[str, int]:
    """The first and last cells of the rows of tables."""
    rows = re.findall(r"^\| *(\w[\w-]*) *\|(?:.*\|)? *(\d+) *\|$", text, re.MULTILINE)
    return {first: int(last) for first, last in rows}


@pytest.mark.usefixtures("spark")
def test_the_snippet_of_the_readme_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pq.write_table(
        pa.table({"symbol": ["IBM", "IBM"], "price": [9.5, 12.0]}), tmp_path / "quotes.parquet"
    )
    (tmp_path / "subscriptions.jsonl").write_text(
        '{"id": 1, "subscriber": "ann", "filter": "symbol = \'IBM\' AND price < 10"}\n'
    )
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    (snippet,) = [each.code for each in blocks(page) if "palio.spark.match" in each.code]
    for name in ("quotes.parquet", "subscriptions.jsonl"):  # the workers are elsewhere
        snippet = snippet.replace(name, str(tmp_path / name))
    exec(f"import palio\n{snippet}", {})
    assert shown(capsys.readouterr().out) == {"1": 1}


def test_quotes_go_from_an_archive_to_a_live_stream(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quotes = example("quotes")
    quotes.tour(spark, tmp_path, 4_000)
    told = capsys.readouterr().out
    assert "3 subscriptions, rejected: ['oops']" in told
    backtest, live = told.split("drops after a block")
    day = quotes.quotes(4_000).to_pylist()
    tech = palio.parse("symbol IN ('CHIP', 'ECHO') AND volume > 19000")
    assert isinstance(tech, palio.Filter)
    assert shown(backtest)["bob"] == sum(each["volume"] >= 19_500 for each in day)
    assert shown(backtest)["cleo"] == sum(map(tech.matches, day))
    assert shown(live)["dan"] == sum(
        each["symbol"] == "ACME" for each in quotes.quotes(1_000, seed=3).to_pylist()
    )
    drops = int(backtest.split()[-1])
    found = re.search(r"(\d+) of them are reported", live)
    assert found is not None
    assert 0 < drops - 1 <= int(found[1]) <= drops
