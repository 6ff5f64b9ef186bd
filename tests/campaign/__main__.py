"""`python -m tests.campaign`: see `tests/campaign/program.py`."""

from tests.campaign.program import run

if __name__ == "__main__":
    run()
