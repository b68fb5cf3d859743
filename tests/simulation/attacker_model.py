"""Who may know what, and who may change what, read from the rights below and from nothing of ours that judges requests.

alice owns all that begins with her name. Everybody else here attacks.
"""

import re
from typing import NamedTuple

from roquette.wire.signature import Credentials

CLUSTER = "DefaultCluster"
INNER_TOPICS = (
    "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC", f"rmq_sys_REVIVE_LOG_{CLUSTER}",
)  # fmt: skip
REPLIES = f"{CLUSTER}_REPLY_TOPIC"


class Rule(NamedTuple):
    """One line of a policy; a star may end the name."""

    actions: str
    kind: str
    name: str
    allow: bool = True


RULES: dict[str, tuple[Rule, ...]] = {
    "alice": (
        Rule("Pub,Sub", "Topic", "alice*"),
        Rule("Pub,Sub", "Group", "alice*"),
        Rule("Pub", "Topic", REPLIES),
        Rule("Pub", "Topic", "rule-of-alice-7c41"),
    ),
    "stranger": (),  # without an account
    "guest": (Rule("Sub", "Topic", "public"), Rule("Sub", "Group", "guest*")),
    "mallory": (
        Rule("Pub,Sub,Get", "Topic", "mallory*"),
        Rule("Pub,Sub,Get", "Group", "mallory*"),
    ),
    "owner": (Rule("All", "Topic", "owner*"), Rule("All", "Group", "owner*")),
    "wide": (
        Rule("Pub,Sub", "Topic", "*"),
        Rule("Pub,Sub", "Group", "*"),
        Rule("All", "Topic", "alice*", allow=False),
        Rule("All", "Group", "alice*", allow=False),
    ),
    "auditor": (Rule("Get,List", "Cluster", CLUSTER),),
    "operator": (Rule("Update,Get,List", "Cluster", CLUSTER),),
}
PARTIES = tuple(name for name in RULES if name != "alice")
LEFT = ("gone", "former")  # switched off, and deleted: they had alice's rights
USERS = {
    name: Credentials(name, f"password-of-{name}-51d8")
    for name in ("admin", "inner", *RULES, *LEFT, "hidden-user-3b9a")
    if name != "stranger"
}
SUPERS = {"admin", "inner"}
WORDS = frozenset(["Create", "Update", "Delete", "Get", "List", "Pub", "Sub"])
LEGAL_USER = re.compile(r"[!-)+-9;-~]{1,255}")
LEGAL_TOPIC = re.compile(r"[%|a-zA-Z0-9_+-]{1,255}")


def holds(who: str, kind: str, name: str, *actions: str) -> bool:
    """Whether an account has one of these rights: the rule that names it most exactly decides, for whom a prohibition counts."""
    if kind == "Topic" and name in INNER_TOPICS:
        return False
    best: tuple[int, bool, bool] = (-1, False, False)
    for rule in RULES.get(who, ()):
        literal = not rule.name.endswith("*")
        fits = rule.name == name if literal else name.startswith(rule.name[:-1])
        given = WORDS if rule.actions == "All" else set(rule.actions.split(","))
        if rule.kind == kind and fits and given.intersection(actions):
            best = max(best, (len(rule.name) + 1000 * literal, not rule.allow, rule.allow))
    return best[2]


def touches(who: str, topic: str, *actions: str) -> bool:
    """The same for a topic by any name: that of a group's retries is its group's."""
    if topic.startswith("%RETRY%"):
        return holds(who, "Group", topic.removeprefix("%RETRY%").partition("+")[0], *actions)
    return holds(who, "Topic", topic, *actions)


class Canary(NamedTuple):
    """Something that is worth knowing: who has one of these rights may. No rights: nobody may."""

    text: bytes
    rights: tuple[tuple[str, str, str], ...] = ()  # kind, name, action


def _read(kind: str, *names: str) -> tuple[tuple[str, str, str], ...]:
    return tuple((kind, name, action) for name in names for action in ("Sub", "Get"))


ALICES = b"body-of-alice-9f27"
PAID = b"body-of-a-payment-2c60"
DEAD = b"body-of-a-dead-letter-b3e1"
REPLY = b"body-of-a-reply-0d94"
PUBLIC = b"body-for-guests-77aa"
OWNERS = b"body-of-owner-c21f"
HIDDEN_TOPIC, HIDDEN_GROUP = "hidden-topic-5d02", "hidden-group-8e13"
HIDDEN_CLIENT = "laptop-of-alice-4417"
OFFSET = 86_420_975
KV = "kv-value-6a55"
SENT_PASSWORD = "password-in-a-request-2f08"
_LOOKS = ("Cluster", CLUSTER, "Get")
_LISTS = ("Cluster", CLUSTER, "List")

CANARIES = (
    *(Canary(user.secret_key.encode()) for user in USERS.values()),
    Canary(SENT_PASSWORD.encode()),  # who said it knows it; an answer repeats none
    Canary(b'"Signature"'),
    Canary(b"failed inside the server"),  # a defect
    Canary(ALICES, _read("Topic", "alice-orders")),
    Canary(PAID, _read("Topic", "alice-paid")),
    Canary(DEAD, _read("Topic", "alice-orders", "%DLQ%alice-billing")),
    Canary(REPLY, _read("Topic", REPLIES)),
    Canary(PUBLIC, _read("Topic", "public")),
    Canary(OWNERS, _read("Topic", "owner-topic")),
    Canary(HIDDEN_TOPIC.encode(), (*_read("Topic", HIDDEN_TOPIC), _LOOKS, _LISTS)),
    Canary(HIDDEN_GROUP.encode(), (*_read("Group", HIDDEN_GROUP), _LOOKS)),
    Canary(HIDDEN_CLIENT.encode(), (*_read("Group", "alice-billing"), _LOOKS)),
    Canary(str(OFFSET).encode(), (*_read("Group", "alice-ledger"), _LOOKS)),
    Canary(KV.encode(), (_LOOKS,)),
    Canary(b"rule-of-alice-7c41", (_LOOKS,)),
    Canary(b"hidden-user-3b9a", (_LOOKS,)),
)


def secrets_from(who: str) -> re.Pattern[bytes]:
    """What somebody must not hear."""
    kept = [one.text for one in CANARIES if not any(holds(who, *right) for right in one.rights)]
    return re.compile(b"|".join(map(re.escape, kept)))


State = dict[tuple[str, ...], object]
"""What stands at the servers, by its kind and name."""


def may_change(who: str, key: tuple[str, ...]) -> bool:
    """Whether somebody's rights let this part of the state become another."""
    kind, *names = key
    rules_cluster = holds(who, "Cluster", CLUSTER, "Update")
    if kind == "topic":
        making = touches(who, names[0], "Create", "Update", "Delete", "Pub")
        return making or _of_own_group(who, names[0]) or rules_cluster
    if kind == "group":
        return rules_cluster or holds(who, "Group", names[0], *WORDS)
    if kind == "messages":
        return touches(who, names[0], "Pub", "Create", "Delete") or _of_own_group(who, names[0])
    if kind == "offsets":
        topic, group = names
        changing = ("Sub", "Update", "Delete")
        return touches(who, topic, *changing) and holds(who, "Group", group, *changing)
    if kind == "clients":
        return rules_cluster or holds(
            who, "Group", names[0], "Sub"
        )  # a rule less, and it is refused
    if kind == "user":
        return rules_cluster and names[-1] not in SUPERS
    if kind == "rules":
        return rules_cluster and names[-1] != who  # those of super users mean nothing
    return rules_cluster


def _of_own_group(who: str, topic: str) -> bool:
    """Retries and dead letters of a group are made for who consumes in it."""
    for prefix in ("%RETRY%", "%DLQ%"):
        if topic.startswith(prefix):
            return holds(who, "Group", topic.removeprefix(prefix).partition("+")[0], "Sub", "Create", "Update", "Delete")  # fmt: skip
    return False
