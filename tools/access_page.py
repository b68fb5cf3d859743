"""Makes docs/reference/access-table.md: `python tools/access_page.py`. Request code x what right it needs.

What is needed stands in access/needs.py; which server serves a code in the rows of both.
"""

from pathlib import Path

from tests.request_samples import BROKER_ROWS, NAMESRV_ROWS

from roquette.access.needs import NEEDS
from roquette.proxy.access import RULES
from roquette.wire.codes import RequestCode

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "access-table.md"
HEAD = """# What right a request needs

Made by `tools/access_page.py` out of the table that the servers judge by (`packages/roquette/src/roquette/access/needs.py`). Do not edit by hand.

Every request is proven (who asks) and judged (may they) before its processor runs; a code that is not in this table is refused. A user needs
all that a row names; of several actions one is enough. "Topic `topic`" is the topic that the header's field `topic` names; a retry topic
`%RETRY%g` stands for `Group:g`. "Cluster" without a field is the cluster of the server that is asked. A super user needs nothing. Where a
request names no topic and no group, a right on the cluster is needed instead, or, as the column says, an account only.

A signature proves the values of the fields and the body, not the fields' names and lengths, and not when it was made: this is Apache's protocol.
Who can change what is on its way can move characters between neighbouring fields, or send a request again; TLS keeps them out.

Tests: `tests/access/test_matrix.py` asks every row of both servers as nobody, as an unknown and as a disabled user, with a wrong secret, with
a body or a field changed after signing, without the right, with all rights but one, with exactly the right, from another address, and as a
super user; a row without an entry here fails. `tests/access/test_apache.py` compares the table with what Apache's own code asks, where "unlike Apache" is empty.

| code | request | served by | needs | without names | unlike Apache |
|---|---|---|---|---|---|
"""
RPCS = """
## Calls of gRPC clients

Each call carries a signature of its own over `x-mq-date-time` alone, so that it can be sent again by who sees it: use TLS (docs/security.md).
A call that proves nobody ends with `UNAUTHORIZED`, one without the right with `FORBIDDEN`; Telemetry, which has no such answer, with gRPC's
status INVALID_ARGUMENT. What a call asks of a broker inside passes the table above as well, as the same account: receipts, recall handles and
transaction ids of others are judged there. "stands for" is the request in white lists of codes and in the audit.

Tests: `tests/proxy/test_access.py` asks every rpc as nobody, as an unknown and as a disabled user, with a wrong secret, without each right, with
exactly the rights, and as a super user; an rpc without a rule is refused.

| rpc | stands for | needs | unlike Apache |
|---|---|---|---|
"""


def main() -> None:
    """Write the page."""
    PAGE.write_text(page())


def page() -> str:
    """The page's text."""
    broker, namesrv = ({row.code for row in rows} for rows in (BROKER_ROWS, NAMESRV_ROWS))
    lines = []
    for code, need in sorted(NEEDS.items()):
        name = RequestCode(code).name
        served = [
            text for text, codes in (("broker", broker), ("name server", namesrv)) if code in codes
        ]
        named = any(right.field for right in need.rights) or bool(need.asks)
        otherwise = (
            (f"Cluster: {need.otherwise[0].value}" if need.otherwise else "an account")
            if named
            else ""
        )
        cells = [
            str(code),
            name,
            ", ".join(served),
            str(need),
            otherwise,
            need.note,
        ]
        lines.append("| " + " | ".join(cells) + " |\n")
    rpcs = "".join(
        f"| {name} | {RequestCode(rule.code).name} | {rule.asks} | {rule.note} |\n"
        for name, rule in RULES.items()
    )
    return HEAD + "".join(lines) + RPCS + rpcs


if __name__ == "__main__":
    main()
