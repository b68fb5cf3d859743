"""A name server's own settings."""

import logging

from roquette.base.config import read_changes, with_changes
from roquette.base.foreign_keys import NAMESRV
from roquette.base.property_files import format_properties
from roquette.errors import ConfigError, Refused
from roquette.nameserver.floor.config import forbidden_keys, shown_settings
from roquette.nameserver.floor.core import NameServerCore, NameServerLane
from roquette.remoting.outcomes import Reply
from roquette.remoting.promises import Promise as P
from roquette.remoting.request import RequestContext, Row, row
from roquette.wire.codes import RequestCode as R
from roquette.wire.codes import ResponseCode

log = logging.getLogger("roquette.nameserver")


class SettingsProcessor:
    """Shows the settings, and changes those that may change while the process runs."""

    def __init__(self, core: NameServerCore) -> None:
        self._core = core

    def rows(self) -> list[Row]:
        """What is served."""
        lane = NameServerLane.BROKERS
        return [
            row(R.UPDATE_NAMESRV_CONFIG, self.update_settings, None, lane, P.MEMORY),
            row(R.GET_NAMESRV_CONFIG, self.get_settings, None, lane, P.NOTHING),
        ]

    def get_settings(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """GET_NAMESRV_CONFIG."""
        return Reply(
            body=format_properties(shown_settings(self._core.config, self._core.fixed)).encode()
        )

    def update_settings(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """UPDATE_NAMESRV_CONFIG: only what may change while running, never an address or a path."""
        try:
            changes = read_changes(body)
            if forbidden_keys(changes):
                raise Refused(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
            (config,) = with_changes((self._core.config,), changes, NAMESRV)
        except ConfigError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        log.info("settings changed by a request now=%s", config)
        self._core.change(config)
        return Reply()
