"""`roquette explain`: the life of a message, with evidence."""

from typing import Annotated

import typer

from roquette.cli.connect import Cluster, cluster_verb
from roquette.cli.messages import say_full
from roquette.cli.output import say


@cluster_verb
def explain_command(
    where: Cluster,
    message: Annotated[str, typer.Argument(metavar="ID|KEY", show_default=False)],
    topic: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Where it was sent; else all topics.")
    ] = None,
) -> None:
    """Say what became of a message: where it is, who got it or why not, and how that is known.

    Takes a message id, an offset message id or a key. The verdicts: docs/howto/explain.md.
    """
    from dataclasses import asdict

    from roquette.admin.explain.collect import MOST, collect
    from roquette.admin.explain.verdicts import explain
    from roquette.base.clock import SystemClock

    found = where.run(collect(message, topic, SystemClock().now_ms()))
    say_full((c for facts in found for c in facts.copies if c.topic == facts.topic), MOST)
    if where.for_programs:
        where.show_value(
            [
                {
                    "message_id": facts.asked,
                    "topic": facts.topic,
                    "verdicts": [asdict(verdict) for verdict in explain(facts)],
                }
                for facts in found
            ]
        )
        return
    for facts in found:
        print(f"{facts.asked} in {facts.topic}")
        for verdict in explain(facts):
            who = f"group {verdict.group}: " if verdict.group else ""
            print(f"  {verdict.code:16} {who}{verdict.says}")
            if verdict.evidence:
                print(f"  {'':16}   {verdict.evidence}")
    if len(found) > 1:
        say(f"{len(found)} messages have this key")
