"""Make packages/roquette/src/roquette/wire/proto of Apache's protocol files; needs grpcio-tools of the release line of `protobuf`.

    python tools/make_proto.py ROCKETMQ_APIS

ROCKETMQ_APIS is a checkout of apache/rocketmq-apis; the modules in the tree are of its commit 3e60073 (2026-07-30).
The modules use a descriptor pool of their own: a program that has Apache's Python client loaded, too, has the same
messages in the default pool, and protobuf refuses two definitions of one name there.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import workspace

OUT = workspace.PRODUCT / "wire" / "proto"
NAMES = ("definition", "service")
PACKAGE = "apache.rocketmq.v2"


def main(apis: Path) -> None:
    """Make the modules and their types."""
    with tempfile.TemporaryDirectory() as folder:
        sources = [f"apache/rocketmq/v2/{name}.proto" for name in NAMES]
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{apis}"]
        subprocess.run(
            [*command, f"--python_out={folder}", f"--pyi_out={folder}", *sources], check=True
        )
        made = Path(folder, *PACKAGE.split("."))
        for name in NAMES:
            for suffix in ("_pb2.py", "_pb2.pyi"):
                text = (made / f"{name}{suffix}").read_text()
                (OUT / f"{name}{suffix}").write_text(_ours(text))


def _ours(text: str) -> str:
    """The text of a module with our package's name and our pool."""
    for before, after in (
        (f"from {PACKAGE} import", "from roquette.wire.proto import"),
        ("_descriptor_pool.Default()", "_pool.POOL"),
        (
            "from google.protobuf import descriptor_pool as _descriptor_pool\n",
            "from roquette.wire.proto import pool as _pool\n",
        ),
        (f"{PACKAGE}.{NAMES[0]}_pb2", f"roquette.wire.proto.{NAMES[0]}_pb2"),
    ):
        text = text.replace(before, after)
    if "_pool.POOL" not in text:
        return text
    lines = [
        line for line in text.splitlines() if "google.protobuf import duration_pb2" not in line
    ]
    lines = [line for line in lines if "google.protobuf import timestamp_pb2" not in line]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
