"""`roquette dev --secure` as a process: what it prints works when it is pasted, and what is closed is closed."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROQUETTE = Path(sys.executable).with_name("roquette")


@contextmanager
def secure_dev(store: Path) -> Iterator[tuple[dict[str, str], list[str], Any]]:
    """Addresses, the printed commands, and the process."""
    command = [
        ROQUETTE,
        "dev",
        "--secure",
        "--namesrv-port",
        "0",
        "--broker-port",
        "0",
        "--store",
        store,
    ]
    with (store.parent / "log").open("a") as log:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert child.stdout is not None
        words = dict(word.split("=") for word in child.stdout.readline().split()[1:])
        lines = [child.stdout.readline().rstrip("\n") for _ in range(11)]
        yield words, [line for line in lines if line], child
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 0
    finally:
        if child.poll() is None:
            child.kill()
        child.communicate()


def pasted(lines: list[str]) -> list[tuple[int, str]]:
    """Exit code and output of each command of a shell that runs them one after the other."""
    script = "\n".join(f'{line}\necho "@@$?"' for line in lines if line)
    env = os.environ | {"PATH": f"{ROQUETTE.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash"], input=script, text=True, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        check=False, timeout=110,
    )  # fmt: skip
    found, text = [], ""
    for line in done.stdout.splitlines():
        if line.startswith("@@"):
            found.append((int(line[2:]), text))
            text = ""
        else:
            text += line + "\n"
    return found


def test_the_printed_commands_work_and_nothing_else_does(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with secure_dev(store) as (words, lines, child):
        assert lines[0] == f"export NAMESRV_ADDR={words['namesrv']}"
        done = dict(
            zip((line.split("  #")[0].strip() for line in lines), pasted(lines), strict=True)
        )

        def of(start: str) -> tuple[int, str]:
            return next(found for line, found in done.items() if line.startswith(start))

        assert of("roquette produce alice-orders")[0] == 0
        code, text = of("roquette consume")
        assert (code, text.splitlines()[0]) == (0, "hello")
        code, text = of("roquette produce plans")
        assert code == 1
        assert "has no permission" in text
        assert "Traceback" not in text
        code, text = of("roquette acl check")
        assert code == 10
        assert "no matched policies" in text
        assert of("roquette acl allow")[0] == 0
        assert "Topic:plans" in of("roquette user show")[1]

        login = store / "secure" / "alice.login"
        secret = login.read_text().split("secretKey=")[1].split("\n")[0]
        private = [path for path in login.parent.iterdir() if path.suffix in (".login", ".key")]
        assert {path.stat().st_mode & 0o077 for path in private} == {0}
        assert len(private) == 4
        shown = Path(f"/proc/{child.pid}/cmdline").read_bytes()
        shown += Path(f"/proc/{child.pid}/environ").read_bytes()
        shown += (tmp_path / "log").read_bytes()
        assert secret.encode() not in shown
        wrong, gone = tmp_path / "wrong.login", tmp_path / "gone.login"
        wrong.write_text(login.read_text().replace(secret, "0" * len(secret)))
        gone.write_text(login.read_text().replace("accessKey=alice", "accessKey=nobody"))
        proofs = {"": (0, "proven"), f" --login {wrong}": (10, "refused")}
        proofs[f" --login {gone}"] = 10, "refused"
        for option, (code, result) in proofs.items():
            found = pasted([*lines[:2], f"roquette user prove{option} -o json"])[-1]
            assert found[0] == code and f'"{result}"' in found[1], (option, found)
        stranger = pasted([lines[0], "unset ROQUETTE_LOGIN", "roquette cluster"])
        assert stranger[-1][0] == 1
        for part in ("namesrv", "broker"):
            host, _, port = words[part].partition(":")
            with socket.create_connection((host, int(port)), 30) as plain:
                plain.sendall(b"\0\0\0\x10\0\0\0\x0c{'code':28}\0")
                assert plain.recv(1) == b""

    with secure_dev(store) as (words, lines, _):  # over the same store, with the same people
        assert secret in login.read_text()
        assert pasted([*lines[:2], "roquette produce alice-orders again"])[-1][0] == 0
