"""Clients as processes the tests drive: one command, one JSON answer (java/src/Driver.java, go/, node/)."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.interop.peers import SMALL_JVM, Process, compiled, require_java
from tests.interop.ways import WAYS

ANSWER_TIMEOUT_S = 90  # more than any command waits for
CLASS_PATHS = {"4.9.8": "client49", "5.5.0": "client55"}


class ClientError(Exception):
    """A command failed in the client: `code` is the broker's response code if there was one."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__(f"{answer['error']}: {answer['text']} ({answer['rootText']})")
        self.code: int | None = answer.get("code")
        self.remark: str | None = answer.get("remark")
        self.answer = answer


JavaError = ClientError


class LineClient:
    """A client program that takes a command a line and answers with a line of JSON."""

    def __init__(self, process: Process, version: str) -> None:
        self.version = version
        self.process = process
        self.process.line_with('{"ready":true}', ANSWER_TIMEOUT_S)

    def __call__(self, command: str, **arguments: Any) -> dict[str, Any]:
        """Run one command; raises ClientError when it failed there.

        Closed name servers are told with the way into them; arguments given here go before it, None leaves one out.
        """
        words = [command]
        found = WAYS.get(str(arguments.get("namesrv")))
        arguments = {**(found.arguments() if found else {}), **arguments}
        for key, value in arguments.items():
            if isinstance(value, dict):  # property={"a": "b"} becomes property.a=b
                words += [f"{key}.{name}={quote(str(inner))}" for name, inner in value.items()]
            elif value is not None and value is not False:
                words.append(f"{key}={quote(str(value))}")
        self.process.write("\t".join(words))
        answer: dict[str, Any] = json.loads(self.process.line(ANSWER_TIMEOUT_S))
        if "error" in answer:
            raise ClientError(answer)
        return answer

    def stop(self) -> None:
        """End the process; its clients go as in a crash of the machine they run on."""
        self.process.stop()


class Driver(LineClient):
    """One JVM with Apache's client of `version` ("4.9.8" or "5.5.0")."""

    def __init__(self, version: str, folder: Path) -> None:
        require_java()
        folder.mkdir(parents=True, exist_ok=True)
        command = [
            *("java", *SMALL_JVM, "-Xmx256m"),
            *(f"-Duser.home={folder}", f"-Drocketmq.home.dir={folder}"),
            *(f"-Drocketmq.client.logRoot={folder}", "-Drocketmq.client.logLevel=WARN"),
            # A broadcasting consumer keeps its offsets in a file; not in the real home.
            f"-Drocketmq.client.localOffsetStoreDir={folder / 'offsets'}",
            *("-cp", compiled(CLASS_PATHS[version]), "Driver"),
        ]
        process = Process(command, folder, {"NAMESRV_ADDR": "", "ROCKETMQ_HOME": str(folder)})
        super().__init__(process, version)

    def mqadmin(self, *words: str) -> str:
        """What Apache's mqadmin prints for these words; its complaints are part of it."""
        found = next((WAYS[word] for word in words if word in WAYS), None)
        way = found.arguments(found.admin) if found else {}
        answer = self("mqadmin", word=dict(enumerate(words)), **way)
        return str(answer["out"]) + str(answer["err"])
