"""A pipeline that does nothing, for tests of the frame."""

from dataclasses import dataclass

from roquette.base.options import REQUIRED, option
from roquette.errors import ConfigError
from roquette_spark.pipelines.kit.frame import Job, Pipeline, PipelineOptions, Plan, Result
from roquette_spark.pipelines.kit.report import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleOptions(PipelineOptions):
    """One option of each kind."""

    topics: tuple[str, ...] = option(REQUIRED, "Topics.")
    rate: int = option(10, "Rows a second.", least=1)
    share: float = option(0.5, "A share.")
    follow: bool = option(False, "Go on.")
    form: str = option("json", "A form.", choices=("json", "raw"))
    password: str = option("", "A secret.", secret=True)
    limit: int | None = option(None, "A limit.")
    extra: tuple[str, ...] = option((), "Words.", split=False)


def plan(options: SampleOptions) -> Plan:
    """What it is given."""
    if options.topics == ("wrong",):
        raise ConfigError("sample: topic wrong is wrong")
    return Plan(reads=[f"topic {topic}" for topic in options.topics], writes=["nothing"])


def run(options: SampleOptions, job: Job) -> Result:
    """Ends well unless the topic is called bad, or wrong, or broken."""
    job.progress.step("running")
    job.progress.update(5, 10, "half")
    if options.topics == ("wrong",):
        raise ConfigError("sample: topic wrong is wrong")
    if options.topics == ("broken",):
        raise ValueError(
            "roquette.errors.RouteNotFound: No route info of this topic: broken\n  at org.x.Y"
        )
    summary = {"rate": options.rate, "topics": options.topics}
    report = Report("Sample <1>", "A lead.", facts=[("1", "fact")])
    return Result(ok=options.topics != ("bad",), summary=summary, report=report, last_line="done")


PIPELINE: Pipeline[SampleOptions] = Pipeline(
    name="sample", help="Do nothing.\n\nAt all.", options=SampleOptions, plan=plan, run=run
)
