"""`palio config`: the settings that a broker would be told."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from palio.cli.reporting import show
from palio.server.configuring import Configured, Setting, configure

__all__ = ["check_configuration", "configured", "show_configuration"]


def show_configuration(
    config: Path | None, given: list[Setting], *, with_origin: bool, as_json: bool
) -> int:
    """Print every setting, and where it was set."""
    settings = configured(config, given).settings
    if as_json:
        show({each.name: _described(each, with_origin=with_origin) for each in settings})
        return 0
    width = max(len(_assignment(each)) for each in settings)
    for each in settings:
        line = _assignment(each)
        show(f"{line:{width}}  # {each.origin}" if with_origin else line)
    return 0


def check_configuration(config: Path | None, given: list[Setting], *, as_json: bool) -> int:
    """Say whether a broker would start with this, as far as can be told without starting it."""
    found = configured(config, given)
    changed = sum(each.origin != "default" for each in found.settings)
    if as_json:
        show({"valid": True, "set": changed})
    else:
        show(f"The configuration is good: {changed} settings, the others have their defaults")
    return 0


def configured(config: Path | None, given: list[Setting]) -> Configured:
    """The settings of a file, of the environment and of flags, the last before the others."""
    return configure(file=config, environment=os.environ, flags=given)


def _described(setting: Setting, *, with_origin: bool) -> Any:
    return {"value": setting.value, "origin": setting.origin} if with_origin else setting.value


def _assignment(setting: Setting) -> str:
    return f"{setting.name} = {json.dumps(setting.value)}"
