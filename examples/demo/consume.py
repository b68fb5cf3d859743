"""One consumer process: append each flight to a file, and only then acknowledge it.

python -m examples.demo.consume NAMESRVS TOPIC GROUP FILE
"""

import asyncio
import signal
import sys
from pathlib import Path

from roquette import Client, ReceivedMessage, StartFrom


async def main(name_servers: str, topic_name: str, group_name: str, path: Path) -> None:
    """Run until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    with path.open("ab") as file:

        def keep(message: ReceivedMessage) -> None:
            file.write(message.body + b"\n")
            file.flush()  # the row has left this process when we return, and returning acknowledges

        async with Client(name_servers) as mq:
            await mq.subscribe(
                topic_name, group=group_name, handler=keep, start_from=StartFrom.FIRST
            )
            await stop.wait()


if __name__ == "__main__":
    namesrvs, topic, group, file = sys.argv[1:]
    asyncio.run(main(namesrvs, topic, group, Path(file)))
