"""Three drains, restores and resizes under a Java producer and consumer; drain_and_resize.py has the long form.

With ROQUETTE_INTEROP_PROVE=1 on Apache's brokers, too.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.interop.conftest import PROVE
from tests.interop.drain_and_resize import yard
from tests.interop.driver import Driver

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

PROVEN = [pytest.param("apache", marks=pytest.mark.long)] if PROVE else []


@pytest.mark.parametrize("flavour", ["roquette", *PROVEN])
def test_java_clients_notice_nothing(
    flavour: str, drivers: Callable[[str], Driver], tmp_path: Path
) -> None:
    with yard(tmp_path, drivers("5.5.0"), flavour) as found:
        for _ in range(3):
            certificate = found.round()
            assert sum(row.end_offset for row in certificate) > 0
        assert len(found.sent) > 100
        assert found.lost() == set()
