"""Whom a replica copies from."""

from typing import Protocol


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
