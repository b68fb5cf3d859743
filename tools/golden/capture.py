"""Captures golden bytes from Apache's Java code into tests/golden: `python tools/golden/capture.py`.

Needs JDK 17 and Maven. Resolves the jars pom.xml names, compiles the programs of java/ and runs them.
What they write replaces the folders of tests/golden they own; a second run changes nothing.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
GOLDEN = HERE.parent.parent / "tests" / "golden"
TIMEOUT_S = 600


def main() -> None:
    """Resolve, compile, run, replace."""
    with tempfile.TemporaryDirectory(prefix="golden-") as name:
        scratch = Path(name)
        path = scratch / "classpath"
        run(
            "mvn",
            "-q",
            "-B",
            "-f",
            str(HERE / "pom.xml"),
            "dependency:build-classpath",
            f"-Dmdep.outputFile={path}",
        )
        classpath = path.read_text().strip()
        classes, output, work = scratch / "classes", scratch / "output", scratch / "work"
        work.mkdir()
        sources = [str(source) for source in sorted((HERE / "java").glob("*.java"))]
        run(
            "javac", "-encoding", "UTF-8", "-nowarn", "-cp", classpath, "-d", str(classes), *sources
        )
        run(
            "java",
            "-Dfile.encoding=UTF-8",
            "-XX:ActiveProcessorCount=2",  # defaults of thread pools depend on it
            f"-Duser.home={work}",  # Apache's logs go below the home folder
            *("-cp", f"{classes}:{classpath}", "Capture", str(output), str(work)),
        )
        for folder in sorted(output.iterdir()):
            shutil.rmtree(GOLDEN / folder.name, ignore_errors=True)
            shutil.copytree(folder, GOLDEN / folder.name)
            print(
                f"captured {folder.name}: {sum(1 for f in folder.rglob('*') if f.is_file())} files"
            )


def run(*command: str) -> None:
    """Run a program; its output is shown only when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        raise SystemExit(f"{command[0]} failed ({done.returncode}):\n{done.stdout}\n{done.stderr}")


if __name__ == "__main__":
    main()
