"""Operations of operators: calls to servers and a fold of their answers, which print nothing.

One broker that does not answer costs its rows, which say why. `Session.run` runs an operation on the event loop (the
command line does), `BlockingConnections.run` without one (`admin.inspector`, for Spark and pipelines).
"""
