"""What would a change do, and shall it be done? Every act of the console, as a command with its plan."""

from typing import Final

from roquette.console import acts
from roquette.console.act_table import ACTS
from roquette.console.ask import View, ViewAsk
from roquette.errors import ConfigError

PATHS: Final = ("/act/{name}",)


def _of(ask: ViewAsk) -> acts.Act:
    found = ACTS.get(ask.words["name"])
    if found is None:
        raise ConfigError(f"there is no act {ask.words['name'][:80]}")
    return found


async def show(ask: ViewAsk) -> View:
    """The form, and the plan."""
    return await acts.show(_of(ask), ask)


async def act(ask: ViewAsk, form: dict[str, str], address: str) -> View | str:
    """Do what was agreed to."""
    return await acts.carry_out(_of(ask), ask, form, address)
