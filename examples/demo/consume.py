"""One consumer process: append each flight to a file, and only then acknowledge it.

python -m examples.demo.consume NAMESRVS TOPIC GROUP FILE
"""

import asyncio
import signal
import sys
from pathlib import Path

from roquette import Client, ReceivedMessage


async def main(namesrvs: str, topic: str, group: str, path: Path) -> None:
    """Run until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    with path.open("ab") as file:

        def keep(message: ReceivedMessage) -> None:
            file.write(message.body + b"\n")
            file.flush()  # the row has left this process when we return, and returning acknowledges

        async with Client(namesrvs) as mq:
            await mq.subscribe(topic, group=group, handler=keep, where="first")
            await stop.wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4], Path(sys.argv[4])))
