"""What the probe of another server's port finds, and how loud it is."""

import asyncio
import logging
from functools import partial

import pytest
from tests.remoting.test_tls import serve
from tests.remoting.tls_world import calling, server_context, serving

from roquette.base.clock import SystemClock
from roquette.base.logs import RateLimited
from roquette.errors import ConnectError
from roquette.remoting.http2_probe import speaks_http2
from roquette.remoting.security import Security
from roquette.remoting.tls import TlsMode


def test_a_port_that_is_asked_again_and_again_is_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Before: each probe counted the lines for itself, so that all of them were written."""

    async def main() -> None:
        server, address = await serve(serving(server_context("stranger"), TlsMode.ENFORCING))
        noise = RateLimited(logging.getLogger("here"), SystemClock())
        speaks = partial(speaks_http2, Security(tls=calling()), noise)
        for _ in range(3):
            with pytest.raises(ConnectError, match="is not asked for its protocols"):
                await speaks(address)
        await server.stop()

    asyncio.run(main())
    assert len([one for one in caplog.records if one.name == "here"]) == 1
