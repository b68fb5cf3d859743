"""JVMs of Spark start in half the CPU time: they map its classes from an archive (CDS).

usage: python -m tests.spark.jvm     (makes the archive: half a minute, once)

The archive lies in `.cache/spark` under a hash of Java, PySpark and the job that it was made by. Where it is missing,
JVMs start as they always do.
"""

import contextlib
import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

from roquette.errors import ConfigError
from roquette_spark.local.jdk import spark_environment, spark_session

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "spark"
# No words about an archive that does not fit after all.
QUIET = "-Xlog:disable -Xlog:all=error:stderr"
MAKE_TIMEOUT_S = 600


def archive() -> Path:
    """Where the archive of this Java and this PySpark is, or would be."""
    java = Path(spark_environment(os.environ)["JAVA_HOME"])
    release = java / "release"
    made_of = [str(java), pyspark.__file__, pyspark.__version__, Path(__file__).read_text()]
    made_of.append(release.read_text() if release.exists() else "")
    return CACHE / f"{hashlib.sha256('|'.join(made_of).encode()).hexdigest()[:16]}.jsa"


def use_archive() -> None:
    """Drivers that this process and its children start take the archive, if it is there."""
    with contextlib.suppress(ConfigError):  # no Java: the tests that need it say so
        if (found := archive()).exists():
            os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:SharedArchiveFile={found} {QUIET}"


def make() -> None:
    """Run a job that uses what the tests use, and keep the classes that it loaded."""
    wanted = archive()
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if wanted.exists():
            return
        fresh = wanted.with_suffix(f".{os.getpid()}")
        options = f"-XX:ArchiveClassesAtExit={fresh} {QUIET}"
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.jvm", "--job"],
            cwd=ROOT,
            env={**os.environ, "SPARK_SUBMIT_OPTS": options},
            capture_output=True,
            text=True,
            timeout=MAKE_TIMEOUT_S,
            check=False,
        )
        if done.returncode == 0 and fresh.exists():
            fresh.replace(wanted)
        else:
            fresh.unlink(missing_ok=True)
            print(f"no archive of Spark's classes could be made:\n{done.stderr[-2000:]}")


def job() -> None:
    """Tables, SQL, a stream, and Python on both sides of Arrow."""
    options = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    spark = spark_session("archive", 2, spark__driver__extraJavaOptions=options)
    with tempfile.TemporaryDirectory() as folder:
        rows = spark.range(100).selectExpr("id", "concat('key-', id % 10) AS key", "map('a', id) m")
        rows.write.partitionBy("key").parquet(f"{folder}/table")
        table = spark.read.parquet(f"{folder}/table")
        table.createOrReplaceTempView("v")
        spark.sql("SELECT key, count(*), max(id) FROM v GROUP BY key ORDER BY key").collect()
        table.mapInArrow(lambda batches: batches, table.schema).count()
        stream = (
            spark.readStream.schema(table.schema)
            .parquet(f"{folder}/table")
            .dropDuplicates(["id"])
            .writeStream.format("parquet")
            .options(path=f"{folder}/out", checkpointLocation=f"{folder}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        stream.awaitTermination()
        read = (
            spark.read.format("rocketmq_commitlog")
            .option("path", str(ROOT / "tests" / "golden" / "store" / "files"))
            .load()
        )
        read.selectExpr("count(*)").collect()
    spark.stop()


if __name__ == "__main__":
    if "--job" in sys.argv:
        job()
    else:
        make()
