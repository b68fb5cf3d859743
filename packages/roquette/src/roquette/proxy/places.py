"""Messages that a request names by their place in a broker's log.

A broker asks for the right to the topic of what stands there; of a proxy's request it sees the proxy's own rights. So the proxy looks
itself, before it asks on somebody's behalf.
"""

from collections.abc import Callable
from typing import Any

from roquette.errors import CorruptRecord, Refused
from roquette.message.names import judged_topic
from roquette.message.properties import ORIGIN_GROUP, REAL_TOPIC, decode_properties
from roquette.message.record import decode_record
from roquette.remoting.client import RemotingClient
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.header_codec import encode_ext
from roquette.wire.headers import ViewMessageRequestHeader


async def prove_place(
    remoting: RemotingClient, broker: str, code: int, header: Any, may_touch: Callable[[str], None]
) -> None:
    """Have the topic of the message at a place judged.

    Args:
        broker: its address. code, header: of CONSUMER_SEND_MSG_BACK or END_TRANSACTION, which name the place. may_touch: `RequestContext.may_touch`.

    Raises:
        Refused: there is no message, or it is of a topic that the caller has no right to. ClientError: the broker is silent.
    """
    ends = code == RequestCode.END_TRANSACTION
    place = header.commit_log_offset if ends else header.offset
    ext = encode_ext(ViewMessageRequestHeader(offset=place))
    found = await remoting.invoke(broker, RequestCode.VIEW_MESSAGE_BY_ID, ext)
    if found.code != ResponseCode.SUCCESS:
        raise Refused(found.code, found.remark or "")
    try:
        record = decode_record(found.body, 0, False)
        said = decode_properties(record.properties)
        if ends:  # a half message's own is not its sender's
            topic = said.get(REAL_TOPIC, "")
        else:
            topic = judged_topic(record.topic, header.group, said.get(ORIGIN_GROUP, ""))
    except CorruptRecord as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"no message at {place}: {error}") from None
    may_touch(topic)
