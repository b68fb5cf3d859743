"""Which HTTP/2 there is: libnghttp2, or h2 where that has no wheel."""

from roquette.wire.http2 import Http2, Http2Limits


def make_connection(limits: Http2Limits) -> Http2:
    """A server's end of a new connection, its settings queued."""
    try:
        from roquette.wire.http2_ngh2 import NgConnection
    except ImportError:
        from roquette.wire.http2_h2 import H2Connection

        return H2Connection(limits)
    return NgConnection(limits)
