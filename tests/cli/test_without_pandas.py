"""In processes of their own: Arrow looks for pandas once a process."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
import pyarrow as pa
from palio.cli.without_pandas import leave_out_pandas
{first}
pa.array([1])
pa.RecordBatch.from_pylist([{{"x": 1}}]).to_pylist()
print("pandas" in sys.modules)
import pandas
print(pa.table({{"x": [1]}}).to_pandas()["x"].tolist())
"""


@pytest.mark.parametrize(("first", "is_there"), [("", True), ("leave_out_pandas()", False)])
def test_arrow_does_not_import_pandas(first: str, is_there: bool) -> None:
    pytest.importorskip("pandas")
    program = PROGRAM.format(first=first)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[0] == str(is_there)
    assert done.stdout.splitlines()[1] == "[1]", "who asks for a data frame has one all the same"
