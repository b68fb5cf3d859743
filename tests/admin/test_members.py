"""Who has which queue: the commands and the operations behind the console's pages say the same."""

import asyncio
from collections import Counter

import pytest
from tests.console.small_web import Web, browse

from roquette import StartFrom
from roquette.admin.groups import group_lag, group_now, readers_now, topic_readers
from roquette.admin.members import members, stacks
from roquette.errors import ConfigError


def test_each_queue_has_its_owner_in_all_that_tell_it() -> None:
    async def scenario(web: Web) -> None:
        run, cluster = web.mq.session.run, web.cluster
        for number in range(24):
            await web.mq.send("orders", str(number).encode())
        for ip, tag in (("10.0.3.1", "*"), ("10.0.3.2", "*"), ("10.0.3.3", "paid")):
            client = await cluster.client(ip)
            group = "differ" if ip == "10.0.3.3" else "billing"
            words = {"group": group, "start_from": StartFrom.FIRST, "handler": lambda m: True}
            await cluster.run_on(ip, client.subscribe("orders", tag=tag, **words))
        await asyncio.sleep(60)
        ids = [row.client for row in await run(members("billing"))]
        assert len(ids) == 2

        rows = await run(group_lag("billing", topic="orders", owners=True))
        assert set(Counter(row.owner for row in rows)) == set(ids)
        seen = await run(readers_now("orders"))
        assert seen.groups == ["billing", "differ"] and not seen.notes
        key = ("broker", "queue", "owner", "lag", "consumer_offset")
        table = {tuple(getattr(row, name) for name in key) for row in rows}
        assert {tuple(getattr(row, n) for n in key) for row in seen.rows["billing"]} == table
        told = (await run(topic_readers("orders", owners=True))).value
        assert Counter(row.group for row in told) == {"billing": len(rows), "differ": len(rows)}
        assert {tuple(getattr(r, n) for n in key) for r in told if r.group == "billing"} == table
        now = await run(group_now("billing", 64))
        assert {tuple(getattr(r, n) for n in key) for r in now.rows if r.topic == "orders"} == table
        assert now.online.filters["orders"] == {"*"} and now.online.model == "CLUSTERING"
        assert (await run(group_now("differ", 64))).online.filters["orders"] == {"paid"}
        plain = await run(group_lag("billing", topic="orders"))
        assert {(row.owner, row.group) for row in plain} == {("", "")}

    browse(scenario, brokers=2)


def test_of_more_groups_and_members_than_fit_names_are_told() -> None:
    async def scenario(web: Web) -> None:
        run, cluster = web.mq.session.run, web.cluster
        await web.mq.send("orders", b"x")
        for number in range(3):
            client = await cluster.client(f"10.0.3.{number}")
            for group in ("a", "b"):
                join = client.subscribe("orders", group=group, handler=lambda m: True)
                await cluster.run_on(f"10.0.3.{number}", join)
        await asyncio.sleep(30)
        seen = await run(readers_now("orders", groups=1, each=2))
        assert (seen.groups, list(seen.rows), list(seen.online)) == (["a", "b"], ["a"], ["a"])
        assert (len(seen.online["a"].members), seen.online["a"].more) == (2, 1)
        assert not (await run(readers_now("orders", most=3))).rows
        (one,) = await run(stacks("a", client=seen.online["a"].members[0].client))
        assert one.client == seen.online["a"].members[0].client and not one.error
        with pytest.raises(ConfigError, match="has no member nobody"):
            await run(stacks("a", client="nobody"))
        now = await run(group_now("absent", 9))
        assert now.rows == [] and "has consumed nothing yet" in now.why and not now.online.members

    browse(scenario)
