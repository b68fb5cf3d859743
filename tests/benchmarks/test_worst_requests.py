"""Every request code has its dearest request in the bench, or the reason why the small sample is that."""

import re
from pathlib import Path

from tests.request_samples import BROKER_ROWS, NAMESRV_ROWS

from benchmarks import worst_cases
from roquette.wire.codes import RequestCode


def test_every_row_of_both_tables_has_a_worst_request() -> None:
    # By the text: to build the requests takes seconds.
    named = set(re.findall(r"\bR\.([A-Z0-9_]+)", Path(worst_cases.__file__).read_text()))
    rows = [RequestCode(row.code).name for row in BROKER_ROWS + NAMESRV_ROWS]
    assert not [name for name in rows if name not in named]
