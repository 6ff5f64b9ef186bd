"""`palio pipeline`, as far as it goes without Spark; tests/spark/test_pipeline.py has the rest."""

from __future__ import annotations

from pathlib import Path

from tests.cli.helpers import Palio

PLAN = """name = "p"

[source]
format = "rate"

[[sinks]]
of = "events"
path = "out"
"""


def test_a_plan_is_explained(palio: Palio, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text(PLAN)
    lines = ["read all of rate", "flatten structs", f"write events as parquet {tmp_path}/out"]
    outcome = palio("pipeline", "check", str(file))
    assert (outcome.status, outcome.err) == (0, "")
    assert outcome.out == "".join(f"{n}. {line}\n" for n, line in enumerate(lines, 1))
    outcome = palio("pipeline", "check", str(file), "--json")
    assert outcome.document == {"valid": True, "pipeline": "p", "plan": lines}


def test_a_wrong_plan_is_told_with_its_place_before_spark_starts(
    palio: Palio, tmp_path: Path
) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text(PLAN.replace("rate", "json").replace('path = "out"', ""))
    for verb in ("check", "run"):
        outcome = palio("pipeline", verb, str(file))
        assert (outcome.status, outcome.out) == (2, "")
        assert outcome.err == f"palio: {file}:6: sinks[0].path: parquet is written to a path\n"
    document = palio("pipeline", "run", str(file), "--json").document
    assert document["error"]["type"] == "InvalidConfiguration"
