"""The Java client as a process the tests drive: one command, one JSON answer (java/src/Driver.java)."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.interop.peers import SMALL_JVM, Process, compiled, require_java

ANSWER_TIMEOUT_S = 60
CLASS_PATHS = {"4.9.8": "client49", "5.5.0": "client55"}


class JavaError(Exception):
    """A command failed in Java: `code` is the broker's response code if there was one."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__(f"{answer['error']}: {answer['text']} ({answer['rootText']})")
        self.code: int | None = answer.get("code")
        self.remark: str | None = answer.get("remark")
        self.answer = answer


class Driver:
    """One JVM with Apache's client of `version` ("4.9.8" or "5.5.0")."""

    def __init__(self, version: str, folder: Path) -> None:
        require_java()
        self.version = version
        folder.mkdir(parents=True, exist_ok=True)
        command = [
            *("java", *SMALL_JVM, "-Xmx256m"),
            *(f"-Duser.home={folder}", f"-Drocketmq.home.dir={folder}"),
            *(f"-Drocketmq.client.logRoot={folder}", "-Drocketmq.client.logLevel=WARN"),
            # A broadcasting consumer keeps its offsets in a file; not in the real home.
            f"-Drocketmq.client.localOffsetStoreDir={folder / 'offsets'}",
            *("-cp", compiled(CLASS_PATHS[version]), "Driver"),
        ]
        self.process = Process(command, folder, {"NAMESRV_ADDR": "", "ROCKETMQ_HOME": str(folder)})
        self.process.line_with('{"ready":true}', ANSWER_TIMEOUT_S)

    def __call__(self, command: str, **arguments: Any) -> dict[str, Any]:
        """Run one command; raises JavaError when it threw."""
        words = [command]
        for key, value in arguments.items():
            if isinstance(value, dict):  # property={"a": "b"} becomes property.a=b
                words += [f"{key}.{name}={quote(str(inner))}" for name, inner in value.items()]
            elif value is not None and value is not False:
                words.append(f"{key}={quote(str(value))}")
        self.process.write("\t".join(words))
        answer: dict[str, Any] = json.loads(self.process.line(ANSWER_TIMEOUT_S))
        if "error" in answer:
            raise JavaError(answer)
        return answer

    def mqadmin(self, *words: str) -> str:
        """What Apache's mqadmin prints for these words; its complaints are part of it."""
        answer = self("mqadmin", word=dict(enumerate(words)))
        return str(answer["out"]) + str(answer["err"])

    def stop(self) -> None:
        """End the JVM; its clients go as in a crash of the machine they run on."""
        self.process.stop()
