"""The v5 gRPC protocol in front of brokers: rpcs become requests of the remoting protocol, and answers messages.

No socket and no task: a session of `proxy/session.py` brings calls, a `Backend` takes requests. LOCAL, inside a broker, is
made by `apps/local_backend.py`; CLUSTER, our client in front of any brokers, is `proxy/cluster.py`.
"""
