"""Studies by their names."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from palio.errors import InvalidInput
from palio_studies.names import STUDIES
from palio_studies.study import Study

__all__ = ["study_named"]


def study_named(name: str) -> Study:
    """A study, loaded when it is asked for: each brings its rooms with it."""
    if name not in STUDIES:
        raise InvalidInput(f"{name!r} is no study; it is one of {', '.join(STUDIES)}")
    return cast(Study, import_module(f"palio_studies.{name}").STUDY)
