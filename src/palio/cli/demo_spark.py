"""`palio demo`, the third part: the same promises, found again in the archive by a job on Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from palio import spark
from palio.cli.demo_network import Listener, Outcome
from palio.model.events import TIME

__all__ = ["backtest"]


def backtest(archive: Path, listeners: Sequence[Listener]) -> tuple[Outcome, ...]:
    """Match an archive with subscriptions as they were at each event's time."""
    rows = [
        {
            "id": listener.name,
            "filter": listener.text,
            "parameters": standing.values,
            "valid_from": standing.since,
            "valid_to": standing.until,
        }
        for listener in listeners
        for standing in listener.history
    ]
    session = spark.session(**{"spark.ui.showConsoleProgress": "false"})
    try:
        quotes = session.read.parquet(str(archive))
        pairs = spark.match(quotes, rows, columns=["id"], time=TIME).collect()
    finally:
        spark.stop(session)
    outcomes = []
    for listener in listeners:
        found = Listener(f"{listener.name}", "spark", listener.text)
        found.promised = listener.promised
        found.heard = [pair["id"] for pair in pairs if pair["subscription"] == listener.name]
        outcomes.append(found.outcome)
    return tuple(outcomes)
