"""The terminals of docs/tutorial.md: its brokers and commands run as they are pasted.

Only the ports are others, since another broker of this machine may have those of the page.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Final

from tests.cli.brokers import PROGRAM, process
from tests.pages import blocks

PAGE: Final = Path(__file__).parents[1] / "docs" / "tutorial.md"
READY: Final = "in force wherever events are published"
"""What `palio sub` says when it is ready; the page says so too."""


def lines_of_the_terminals() -> dict[str, str]:
    """The lines of the page that run a command of Palio, each by the command and its first name."""
    page = PAGE.read_text(encoding="utf-8")
    assert READY in page
    lines = [block.code.strip() for block in blocks(page) if block.language == "sh"]
    palio = [line for line in lines if "\n" not in line]
    return {
        line.partition("palio ")[2].partition(" --listen")[0].split(' "')[0]: line for line in palio
    }


def arguments_of(line: str, ports: dict[str, str]) -> list[str]:
    told = re.sub(r"\b740[12]\b", lambda port: ports[port[0]], line)
    return shlex.split(told.partition("palio ")[2])


def until(stream: IO[str] | None, text: str) -> str:
    """The first line that has a text."""
    assert stream is not None
    seen = []
    for line in iter(stream.readline, ""):
        seen.append(line)
        if text in line:
            return line
    raise AssertionError(f"{text!r} did not come: {seen}")


def test_two_brokers_carry_an_event_as_the_page_says() -> None:
    lines = lines_of_the_terminals()
    ports = {"7401": "0"}
    with ExitStack() as running:

        def serve(line: str) -> str:
            broker = running.enter_context(process(*arguments_of(line, ports)))
            found = re.search(r":(\d+)$", until(broker.stdout, "listens on").strip())
            assert found is not None
            return found[1]

        north = serve(lines["serve --name north"])
        ports = {"7402": "0", "7401": north}
        south = serve(lines["serve --name south"])
        ports = {"7402": south, "7401": north}
        hears = running.enter_context(process(*arguments_of(lines["sub"], ports)))
        until(hears.stderr, READY)
        pub = lines["pub --broker palio://127.0.0.1:7401"]
        event = pub.split("'")[1]
        subprocess.run(
            [sys.executable, "-c", PROGRAM, *arguments_of(pub, ports)],
            input=event + "\n",
            text=True,
            check=True,
        )
        assert "IBM" in until(hears.stdout, "9.5")
        assert hears.wait() == 0
        topology = lines["topology --broker palio://127.0.0.1:7401"]
        asked = running.enter_context(process(*arguments_of(topology, ports)))
        told, _ = asked.communicate()
        assert "north" in told
        assert "south" in told
