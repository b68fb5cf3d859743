"""Whom a replica copies from."""

from typing import NamedTuple, Protocol


class Copied(NamedTuple):
    """The mastership whose tables are copied.

    Attributes:
        address: host:port; empty: no tables are to be copied now. epoch: 0 outside of groups.
    """

    address: str = ""
    epoch: int = 0


class MasterSource(Protocol):
    """Where the master of a replica is found now. Read each time: it moves."""

    @property
    def master_address(self) -> str:
        """host:port for requests; empty: nobody is master, as far as is known."""
        ...

    @property
    def ha_address(self) -> str:
        """host:port for the log's bytes; empty: unknown."""
        ...


def words_of_master(source: MasterSource) -> str:
    """The end of a refusal: where to ask."""
    address = source.master_address
    return f" (the master is {address})" if address else " (no master is known now)"
