"""What operators ask about reads of the log's cold part (2001 to 2003), and whether the log is read ahead (2004).

Apache: AdminBrokerProcessor.updateColdDataFlowCtrGroupConfig and its neighbours.
"""

import logging
from typing import Final

from roquette.base.config import read_changes
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import Beat, Feature, Lane
from roquette.errors import ConfigError, Refused
from roquette.message.names import MAX_GROUP
from roquette.remoting.promises import Promise
from roquette.remoting.request import Reply, RequestContext, Row, row
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.headers import SetCommitLogReadModeRequestHeader
from roquette.wire.json_body import encode_body

log = logging.getLogger("roquette.broker")

INTERVAL_S: Final = 5.0
NORMAL, RANDOM = 0, 1  # of madvise
MAX_THRESHOLD: Final = 2**63 - 1


class ColdReadFeature(Feature):
    """Shows and sets what groups may read of the log's cold part; pulls go by it."""

    def __init__(self, core: BrokerCore) -> None:
        self._live = core.live
        self._cold = core.tables.cold_reads

    def rows(self) -> list[Row]:
        """What it serves."""
        codes, lane, memory = RequestCode, Lane.ADMIN, Promise.MEMORY
        header = SetCommitLogReadModeRequestHeader
        return [
            row(codes.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, self.set_thresholds, None, lane, memory),
            row(codes.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, self.remove_threshold, None, lane, memory),
            row(codes.GET_COLD_DATA_FLOW_CTR_INFO, self.show, None, lane, Promise.NOTHING),
            row(codes.SET_COMMITLOG_READ_MODE, self.set_read_mode, header, lane, memory),
        ]

    def beats(self) -> list[Beat]:
        """Intervals of counting."""
        return [Beat("cold-reads", INTERVAL_S, self._end_interval)]

    def _end_interval(self) -> None:
        self._cold.end_interval(self._live.current)

    def set_thresholds(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """UPDATE_COLD_DATA_FLOW_CTR_CONFIG: lines `group=bytes`; lines that are wrong are left out, as in Apache."""
        try:
            lines = read_changes(body)
        except ConfigError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        wrong = []
        for group, text in lines.items():
            size = _whole(text)
            if size is None or len(group) > MAX_GROUP:
                wrong.append(group)
            else:
                self._cold.set_threshold(group, size)
        log.info(
            "thresholds of cold reads set count=%d wrong=%d", len(lines) - len(wrong), len(wrong)
        )
        if wrong:
            log.warning("no threshold for cold reads group=%.200s", wrong[0])
        return Reply()

    def remove_threshold(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """REMOVE_COLD_DATA_FLOW_CTR_CONFIG: the body is the group's name; one without a threshold is fine."""
        self._cold.remove_threshold(body.decode("utf-8", "replace"))
        return Reply()

    def show(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """GET_COLD_DATA_FLOW_CTR_INFO: what was read in this interval, and the thresholds."""
        return Reply(b"", encode_body(self._cold.shown(self._live.current)))

    def set_read_mode(
        self, ctx: RequestContext, header: SetCommitLogReadModeRequestHeader, body: bytes
    ) -> Reply:
        """SET_COMMITLOG_READ_MODE: 0 reads the log ahead, 1 does not: dataReadAheadEnable."""
        mode = _whole(header.read_ahead_mode or "")
        if mode is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, "set commitlog readahead mode failed")
        if mode not in (NORMAL, RANDOM):
            raise Refused(
                ResponseCode.SYSTEM_ERROR, "set commitlog readahead mode param value error"
            )
        self._live.update({"dataReadAheadEnable": "true" if mode == NORMAL else "false"})
        return Reply(remark=f"set commitlog readahead mode success, mode: {mode}")


def _whole(text: str) -> int | None:
    """A number as Java's Long.valueOf reads it; None: it is not one."""
    digits = text.removeprefix("-") if text.startswith("-") else text.removeprefix("+")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 19:
        return None
    number = int(text)
    return number if -MAX_THRESHOLD - 1 <= number <= MAX_THRESHOLD else None
