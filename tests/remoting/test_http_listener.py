"""The port of metrics: who says nothing keeps nobody out."""

import asyncio

import pytest

from roquette.remoting.http1 import MOST, HttpListener
from roquette.remoting.http_pages import HttpPages
from roquette_testing.sim_loop import SimLoop, run

HOST, PORT = "10.0.0.1", 9400
ASK = b"GET /healthz HTTP/1.1\r\nHost: 10.0.0.1\r\n\r\n"


@pytest.mark.promise(
    "Security",
    "`/metrics` is for this machine, or the port of `metricsListen`, which silent connections do not take away",
)
def test_of_a_silent_crowd_the_one_that_waited_longest_goes() -> None:
    async def main(loop: SimLoop) -> None:
        listener = HttpListener(HttpPages(about="a port"))
        await listener.start(f"{HOST}:{PORT}")
        balancer = await asyncio.open_connection(HOST, PORT)
        crowd = []
        for number in range(3 * MOST):
            crowd.append(await asyncio.open_connection(HOST, PORT))
            await asyncio.sleep(0.01)
            if number % 10 == 0:  # who asks stays
                balancer[1].write(ASK)
                assert b"200 OK" in await balancer[0].readuntil(b"ok\n")
        fresh = await asyncio.open_connection(HOST, PORT)
        fresh[1].write(ASK)
        assert b"200 OK" in await fresh[0].readuntil(b"ok\n")
        assert len(listener._open) == MOST
        with pytest.raises(ConnectionError):
            await crowd[0][0].read()
        await listener.close()

    run(main, 1)
