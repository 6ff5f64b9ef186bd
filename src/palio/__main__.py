"""`python -m palio`: the command, where it is not on the path."""

from __future__ import annotations

from palio.cli.main import run

if __name__ == "__main__":
    run()
