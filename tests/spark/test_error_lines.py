"""What Spark raises becomes one line that says what to do."""

import pytest

from roquette.errors import ConfigError, ConnectError, RouteNotFound
from roquette_spark.values.errors import explain
from roquette_spark.values.offsets import DataLoss

PLANNING = """[PYTHON_DATA_SOURCE_ERROR] Failed to plan Python data source read in Python: Traceback (most recent call last):
  File "/x/pyspark/sql/worker/plan_data_source_read.py", line 1, in main
    reader = data_source.reader(schema=schema)
roquette.errors.ConfigError: rocketmq: unknown option subscrib; did you mean subscribe?
 SQLSTATE: 38000

JVM stacktrace:
org.apache.spark.sql.AnalysisException
\tat org.apache.spark.sql.errors.QueryCompilationErrors$.pythonDataSourceError(QueryCompilationErrors.scala:1)
"""
WORKER = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure:
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/x/worker.py", line 2, in main
ModuleNotFoundError: No module named 'pyarrow'

\tat org.apache.spark.api.python.BasePythonRunner
"""


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ConfigError("a: b"), "a: b"),
        (
            RuntimeError(PLANNING),
            "rocketmq: unknown option subscrib; did you mean subscribe?",
        ),
        (
            RuntimeError(WORKER),
            "ModuleNotFoundError: No module named 'pyarrow': install it where Spark's workers run, or set "
            "PYSPARK_PYTHON",
        ),
        (
            RouteNotFound("orders"),
            "No route info of this topic: orders: does the topic exist? See: roquette topic list -n NAMESRV",
        ),
        (
            ConnectError("connect to 127.0.0.1:1 failed: [Errno 111] Connection refused"),
            "connect to 127.0.0.1:1 failed: [Errno 111] Connection refused: is the name server running there? "
            "Give its address with -n HOST:PORT",
        ),
        (
            RuntimeError(
                "[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number."
            ),
            "[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number: Java did not "
            "start; see: roquette spark doctor",
        ),
        (
            ConnectionRefusedError(111, "Connection refused"),
            "Spark's JVM has ended by itself (killed, or out of memory?): the same command goes on where it "
            "stopped",
        ),
        (
            RuntimeError(
                "[STREAM_FAILED] Query [id = 1] terminated with exception: Python worker failed to connect back. SQLSTATE: XXKST"
            ),
            "[STREAM_FAILED] Query [id = 1] terminated with exception: Python worker failed to connect back. "
            "SQLSTATE: XXKST: this machine is too busy to start Spark's workers in time: the same command goes on "
            "where it stopped",
        ),
        (
            ConfigError("rocketmq: unknown option failondatalos; did you mean failOnDataLoss?"),
            "rocketmq: unknown option failondatalos; did you mean failOnDataLoss?",
        ),
        (
            DataLoss("rocketmq: T: offsets 3 to 5 are gone"),
            "rocketmq: T: offsets 3 to 5 are gone: messages were deleted before they were read",
        ),
        (
            RuntimeError(
                "An error occurred while calling o286.start.\n: org.apache.hadoop.fs.FSError: java.io.IOException: "
                "No space left on device\n\tat org.x.Y\n"
            ),
            "java.io.IOException: No space left on device: the disk of the destination, or of Spark's own files, is "
            "full: make room, and the same command goes on where it stopped",
        ),
        (
            type("Py4JError", (Exception,), {})("An error occurred while calling o5.start"),
            "Spark's JVM has ended by itself (killed, or out of memory?): the same command goes on where it "
            "stopped",
        ),
        (
            RuntimeError(
                "[STREAM_FAILED] Query [id = 1] terminated with exception: Traceback (most recent call last):\n"
                '  File "/x/table_writer.py", line 2, in commit\n'
                "roquette_spark.pipelines.kit.table_files.Overtaken: another program has changed /t\n\tat org.x.Y\n"
            ),
            "another program has changed /t",
        ),
        (RuntimeError("first\n\tat org.x.Y\n"), "first"),
        (KeyError(), "KeyError"),
    ],
)
def test_the_line(error: Exception, line: str) -> None:
    assert explain(error) == line


def test_a_long_text_is_cut() -> None:
    assert len(explain(RuntimeError("x" * 10_000))) <= 500
