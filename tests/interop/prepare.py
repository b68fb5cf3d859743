"""Get and build all peers of the interop tests, and the browser of the reports', side by side: what fails here fails again, and is told, in the tests.

usage: python -m tests.interop.prepare
"""

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.interop.clients import etcd_program, go_program, node_program, prometheus_program
from tests.interop.conftest import java_clients, java_servers
from tests.interop.peers import make_shared_classes
from tests.interop.v5.peers import go_peer, java_peer, node_peer, python_peer, rust_peer
from tests.pipelines.browser import chromium


def java() -> None:
    """Maven's downloads, one after the other, and what Apache's broker loads of them."""
    java_clients()
    java_servers()
    java_peer()
    make_shared_classes()


BUILDS = (
    *(java, go_program, node_program, etcd_program, prometheus_program, chromium),
    *(go_peer, node_peer, python_peer, rust_peer),
)


def prepared(build: Callable[[], object]) -> None:
    """Build; say what is in the way."""
    try:
        build()
    except (pytest.skip.Exception, pytest.fail.Exception, AssertionError) as error:
        print(error)


def main() -> None:
    with ThreadPoolExecutor() as pool, contextlib.suppress(KeyboardInterrupt):
        list(pool.map(prepared, BUILDS))


if __name__ == "__main__":
    main()
