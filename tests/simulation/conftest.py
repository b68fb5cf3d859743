"""Worlds that have ended are not kept by what was said in them."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def texts_alone(request: pytest.FixtureRequest) -> Iterator[None]:
    """Of a long case, which has hundreds of worlds, pytest keeps texts: an exception has frames, and these a world's files."""
    if request.node.get_closest_marker("long") is None:
        yield
        return
    make = logging.getLogRecordFactory()

    def text_of(*args: object, **more: object) -> logging.LogRecord:
        record = make(*args, **more)
        record.msg, record.args = record.getMessage(), ()
        if record.exc_info:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
            record.exc_info = None
        return record

    logging.setLogRecordFactory(text_of)
    yield
    logging.setLogRecordFactory(make)
