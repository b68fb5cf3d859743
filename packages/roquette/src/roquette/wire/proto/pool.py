"""The descriptor pool of our generated modules, apart from the process's default one (tools/make_proto.py)."""

from typing import Final

from google.protobuf import descriptor_pool, duration_pb2, timestamp_pb2

POOL: Final = descriptor_pool.DescriptorPool()
for module in (duration_pb2, timestamp_pb2):
    POOL.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
