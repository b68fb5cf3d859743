"""The bits of a message's and of a pull's sys flag (Apache: MessageSysFlag, PullSysFlag)."""

from typing import Final

COMPRESSED: Final = 0x1
MULTI_TAGS: Final = 0x2

TRANSACTION_NOT: Final = 0x0
TRANSACTION_PREPARED: Final = 0x4
TRANSACTION_COMMIT: Final = 0x8
TRANSACTION_ROLLBACK: Final = 0xC
TRANSACTION_MASK: Final = 0xC

BORN_HOST_V6: Final = 0x10
STORE_HOST_V6: Final = 0x20
NEED_UNWRAP: Final = 0x40
INNER_BATCH: Final = 0x80

# The compression kind stands in bits 8 to 10: 0 is the zlib of old clients, which had no kind.
COMPRESSION_SHIFT: Final = 8
COMPRESSION_MASK: Final = 0x7 << COMPRESSION_SHIFT
COMPRESSION_LZ4: Final = 0x1 << COMPRESSION_SHIFT
COMPRESSION_ZSTD: Final = 0x2 << COMPRESSION_SHIFT
COMPRESSION_ZLIB: Final = 0x3 << COMPRESSION_SHIFT

PULL_COMMIT_OFFSET: Final = 0x1
PULL_SUSPEND: Final = 0x2
PULL_SUBSCRIPTION: Final = 0x4
PULL_CLASS_FILTER: Final = 0x8
PULL_LITE: Final = 0x10

TOPIC_UNIT: Final = 0x1
TOPIC_UNIT_SUB: Final = 0x2
