"""Requests that name a message by its place in the log: the right is asked of the topic it is of, whatever they say."""

from typing import Any

import pytest
from tests.access.gate import SECRET, Book

from roquette.access.guard import Audit, Guard, Scope
from roquette.access.model import Acl, Policy, PolicyEntry, PolicyType, Resource, parse_actions
from roquette.access.policies import PolicyJudge, PolicyTable
from roquette.base.clock import SystemClock
from roquette.remoting.settings import Protection
from roquette.wire.signature import Credentials, Signer

MINE, THEIRS = "mine", "theirs"


def guarded() -> Protection:
    """`root` may do everything, `eve` all on the topic `mine` and the group `g`."""
    book = Book()
    book.add("root", is_super=True)
    book.add("eve")
    entries = tuple(
        PolicyEntry(Resource.parse(key), parse_actions(["All"]))
        for key in (f"Topic:{MINE}", "Group:g")
    )
    table = PolicyTable([Acl("User:eve", (Policy(PolicyType.CUSTOM, entries),))])
    scope = Scope(cluster="DefaultCluster")
    guard = Guard(book, PolicyJudge(table), scope, Audit(SystemClock()))
    return Protection(guard=guard.check)


async def client_of(case: Any, name: str) -> Any:
    client = await case.client()
    client.wire.signer = Signer(Credentials(name, SECRET))
    return client


def asking(place: str, sent: dict[str, str], topic: str, group: str) -> dict[int, dict[str, Any]]:
    offset = int(place[16:], 16)
    end = {"producerGroup": "pg", "tranStateTableOffset": sent["queueOffset"], "commitLogOffset": offset,
           "commitOrRollback": 8, "fromTransactionCheck": "true", "msgId": "x", "transactionId": "x"}  # fmt: skip
    return {
        33: {"offset": offset, "topic": topic},
        36: {"offset": offset, "group": group, "delayLevel": 0, "originTopic": topic},
        37: end | {"topic": topic},
        309: {"consumerGroup": group, "clientId": "c1", "msgId": place, "topic": topic},
        323: {"msgId": place, "topic": topic},
    }


@pytest.mark.parametrize("code", [33, 36, 37, 309, 323])
@pytest.mark.parametrize("said", [MINE, None], ids=["of-mine", "unsaid"])
def test_no_message_of_another_topic_is_touched(
    run_broker: Any, code: int, said: str | None
) -> None:
    async def scenario(case: Any) -> None:
        root, eve = await client_of(case, "root"), await client_of(case, "eve")
        half = {"UNIQ_KEY": "k", "WAIT": "true"}
        half |= {"TRAN_MSG": "true", "PGROUP": "pg"} if code in (37, 323) else {}
        beat = (
            b'{"clientID":"c1","producerDataSet":[],"consumerDataSet":[{"groupName":"g",'
            b'"consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING","subscriptionDataSet":[]}]}'
        )
        assert (await eve.call(34, {}, beat)).code == 0

        async def answer(topic: str) -> Any:
            sent = case.ext(await root.produce(topic, properties=half, f=4 if len(half) > 2 else 0))
            fields = asking(sent["msgId"], sent, said or topic, "g")[code]
            if said is None:
                fields = {k: v for k, v in fields.items() if k not in ("topic", "originTopic")}
            if code == 309 and topic == MINE:
                eve.send(code, fields)
                while (come := await eve.receive()).code == 40:
                    pass
                return come
            return await eve.call(code, fields)

        refused = await answer(THEIRS)
        assert refused.code == 16, refused.remark
        assert refused.remark.startswith(
            f"User:eve has no permission to access Topic:{THEIRS} from 10.0.0."
        )
        assert (await answer(MINE)).code in (0, 309)

    run_broker(scenario, protection=guarded())
