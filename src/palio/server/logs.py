"""Logs: lines for people, or a JSON object a line for programs. To stderr, by stdlib logging."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import IO, Any


def _details(record: logging.LogRecord) -> dict[str, Any]:
    found = getattr(record, "details", None)
    return dict(found) if isinstance(found, Mapping) else {}


def _when(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


class JsonLines(logging.Formatter):
    """`{"time": ..., "level": ..., "logger": ..., "event": ..., details}`."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as one line (`logging.Formatter`)."""
        document: dict[str, Any] = {
            "time": _when(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        document |= {
            name: value for name, value in _details(record).items() if name not in document
        }
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        return json.dumps(document, default=str, ensure_ascii=False)


class TextLines(logging.Formatter):
    """`time level event name=value ...`, a line each."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as one line (`logging.Formatter`)."""
        pairs = [f"{name}={_shown(value)}" for name, value in _details(record).items()]
        line = " ".join([_when(record), record.levelname.lower(), record.getMessage(), *pairs])
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def _shown(value: object) -> str:
    """A value as one word: what others chose cannot break a line or forge a pair."""
    text = str(value)
    plain = text.isprintable() and text and not any(mark in text for mark in " =\"'")
    return text if plain else json.dumps(text)


def configure_logs(level: str, style: str, stream: IO[str] | None = None) -> logging.Handler:
    """Send what `palio` and its servers log to stderr; return the handler, to be removed."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if style == "json" else TextLines())
    for name in ("palio", "uvicorn"):
        logger = logging.getLogger(name)
        logger.setLevel(level.upper())
        logger.addHandler(handler)
        logger.propagate = False
    return handler
