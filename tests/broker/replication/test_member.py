"""A member of a group and the store it is started on."""

import asyncio
import os

import msgspec
import pytest

from roquette.broker.group.member_file import IDENTITY, MemberFile, RememberedState
from roquette.errors import ConfigError
from roquette_testing.cluster import SMALL_STORE, SimCluster, simulate


def test_a_store_of_another_group_is_not_taken_over() -> None:
    """A wrong brokerName would make one log of two groups' messages."""

    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv("10.0.0.1", controller="embedded")
        files, root = cluster.host("10.0.1.1").files, SMALL_STORE["root_dir"]
        files.make_dirs(root)
        kept = RememberedState(group="DefaultCluster/first", id=1, boot="", clean=True)
        files.write_atomic(os.path.join(root, IDENTITY), msgspec.json.encode(kept))
        with pytest.raises(ConfigError, match=r"belongs to the group DefaultCluster/first, not to"):
            await cluster.add_member("10.0.1.1", "second")

    simulate(scenario)


@pytest.mark.parametrize("broken", ["save", "begin_life"])
def test_a_failed_start_leaves_nothing_open(broken, monkeypatch) -> None:
    """Its replica's broker runs already when the member's file cannot be written."""

    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv("10.0.0.1", controller="embedded")
        before = len(asyncio.all_tasks())

        def fail(*_: object) -> None:
            raise ConfigError("no member file")

        with monkeypatch.context() as patch:
            patch.setattr(MemberFile, broken, fail)
            with pytest.raises(ConfigError, match="no member file"):
                await cluster.add_member("10.0.1.1", "orders")
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == before
        member = await cluster.add_member("10.0.1.1", "orders")  # the lock and the ports are free
        assert member.broker is not None

    simulate(scenario)
