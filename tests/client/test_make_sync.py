"""The blocking client is what tools/make_sync.py makes of the asynchronous one."""

import sys

from tests.interop.peers import ROOT

sys.path.insert(0, str(ROOT / "tools"))


def test_the_blocking_client_is_up_to_date() -> None:
    import make_sync

    for path, text in make_sync.texts().items():
        assert path.read_text("utf-8") == text, (
            "run tools/make_sync.py: a public method of the asynchronous client has changed"
        )
