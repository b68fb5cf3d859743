"""A member of a group and the store it is started on."""

import os

import msgspec
import pytest

from roquette.broker.replication.member_file import IDENTITY, Kept
from roquette.errors import ConfigError
from roquette.testing.cluster import SMALL_STORE, SimCluster, simulate


def test_a_store_of_another_group_is_not_taken_over() -> None:
    """A wrong brokerName would make one log of two groups' messages."""

    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv("10.0.0.1", controller="embedded")
        files, root = cluster.host("10.0.1.1").files, SMALL_STORE["root_dir"]
        files.make_dirs(root)
        kept = Kept(group="DefaultCluster/first", id=1, boot="", clean=True)
        files.write_atomic(os.path.join(root, IDENTITY), msgspec.json.encode(kept))
        with pytest.raises(ConfigError, match=r"belongs to the group DefaultCluster/first, not to"):
            await cluster.add_member("10.0.1.1", "second")

    simulate(scenario)
