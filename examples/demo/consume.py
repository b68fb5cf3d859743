"""One consumer process: append each flight to a file, and only then acknowledge it.

python -m examples.demo.consume NAMESRVS TOPIC GROUP FILE
"""

import asyncio
import contextlib
import signal
import sys
from pathlib import Path

from roquette import Client


async def main(namesrvs: str, topic: str, group: str, path: Path) -> None:
    """Run until SIGTERM."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with path.open("ab") as file, contextlib.suppress(asyncio.CancelledError):
        async with Client(namesrvs) as mq:
            async for message in mq.consume(topic, group=group):
                file.write(message.body + b"\n")
                file.flush()  # the row has left this process before the loop acknowledges the message


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4], Path(sys.argv[4])))
