"""Places of pipelined sends, and the headers whose common part is encoded once."""

import asyncio

import msgspec
import pytest

from roquette.base.clock import SystemClock
from roquette.client.config import ClientConfig
from roquette.client.pipeline import Places
from roquette.client.send_request import Headers, SendRequest
from roquette.message.message import MessageQueue
from roquette.wire.header_codec import decode_ext
from roquette.wire.headers import SendMessageRequestHeaderV2

QUEUE = MessageQueue("orders", 'broker "a" of 100 %', 3)


def test_places_are_given_in_turn_and_one_whose_taker_was_cancelled_is_not_lost() -> None:
    async def main() -> None:
        places = Places(1, 100)
        got: list[int] = []

        async def take(number: int) -> None:
            await places.take(1)
            got.append(number)

        assert places.try_take(1)
        assert not places.try_take(1)
        first, second, third = (asyncio.create_task(take(n)) for n in range(3))
        await asyncio.sleep(0)
        first.cancel()  # before a place is there
        places.release(1)
        await asyncio.sleep(0)
        assert got == [1]
        places.release(1)
        third.cancel()  # when its place is there already
        await asyncio.gather(first, second, third, return_exceptions=True)
        assert got == [1]
        assert places.free == 1
        assert places.free_bytes == 100

    asyncio.run(main())


def test_bytes_are_bounded_too_and_what_is_larger_than_all_goes_alone() -> None:
    async def main() -> None:
        places = Places(10, 100)
        got: list[int] = []

        async def take(size: int) -> None:
            await places.take(size)
            got.append(size)

        assert places.try_take(60)
        assert not places.try_take(41)
        large, small, cut = (asyncio.create_task(take(size)) for size in (500, 30, 90))
        await asyncio.sleep(0)
        assert not places.try_take(1), "nobody passes those that wait"
        places.release(60)
        await asyncio.sleep(0)
        assert got == [500], "it is alone"
        places.release(500)
        await asyncio.sleep(0)
        assert got == [500, 30]
        last = asyncio.create_task(take(20))
        await asyncio.sleep(0)
        assert got == [500, 30]
        cut.cancel()  # it was too large, those behind it are not
        await asyncio.gather(large, small, cut, last, return_exceptions=True)
        assert got == [500, 30, 20]
        for size in (30, 20):
            places.release(size)
        assert (places.free, places.free_bytes) == (10, 100)

    asyncio.run(main())


@pytest.mark.parametrize("reconsume", [0, 2])
def test_a_header_is_the_same_whether_its_common_part_is_known_or_not(reconsume: int) -> None:
    headers = Headers("g%d", ClientConfig(name_servers="n:1"), SystemClock())
    for number in range(2):
        request = SendRequest("orders", b"x", f'a\x01"{number}"\x02%s\x01ü\x02', ["id"])
        request.sys_flag, request.flag, request.reconsume = number, 7 - number, reconsume
        header = decode_ext(
            SendMessageRequestHeaderV2, msgspec.Raw(headers.header_for(request, QUEUE))
        )
        assert header == SendMessageRequestHeaderV2(
            producer_group="g%d",
            topic="orders",
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=3,
            sys_flag=number,
            born_timestamp=header.born_timestamp,
            flag=7 - number,
            properties=request.properties,
            reconsume_times=reconsume,
            bname=QUEUE.broker_name,
        )
        assert header.born_timestamp > 0
