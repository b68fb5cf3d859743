"""Send each line of a file, as fast as the brokers take them, and go on where it was after any end.

python -m examples.ingest.ingest 127.0.0.1:9876 readings.txt

Its place in the file is in `readings.txt.place`: all lines before it are stored at the brokers. SIGTERM ends it in order, and no
line is sent twice; after a kill the lines since the last place are sent again.
"""

import asyncio
import os
import signal
import sys
from itertools import islice
from pathlib import Path

import roquette

TOPIC = "readings"
CHUNK = 1_000  # lines between two places


async def ingest(mq: roquette.Client, source: Path, stop: asyncio.Event) -> int:
    """Send what is not sent yet, until `stop`; how many lines. Raises ClientError: a line was not stored."""
    place = source.with_name(source.name + ".place")
    sent = 0
    with source.open("rb") as lines:
        lines.seek(int(place.read_text()) if place.exists() else 0)
        while not stop.is_set() and (chunk := list(islice(iter(lines.readline, b""), CHUNK))):
            answers = [await mq.send_nowait(TOPIC, line.rstrip(b"\n")) for line in chunk]
            await asyncio.gather(*answers)  # raises what became of one that was not stored
            sent += len(chunk)
            new = place.with_suffix(".new")
            new.write_text(str(lines.tell()))
            os.replace(new, place)
    return sent


async def main(name_servers: str, source: str) -> int:
    """The exit status."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with roquette.Client(name_servers) as mq:
        sent = await ingest(mq, Path(source), stop)
    print(f"sent={sent} unsaid={mq.unsaid}", flush=True)
    return min(mq.unsaid, 1)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
