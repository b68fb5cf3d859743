"""What recovery of an index file keeps, where a lost sector cannot be told by the chains of its slots."""

from roquette.store.index.index_file import (
    ENTRY_SIZE,
    HEADER_SIZE,
    SLOT_SIZE,
    IndexFile,
    index_file_size,
)
from roquette_testing.faulty_files import FaultyFiles


def test_an_entry_whose_hash_was_lost_is_not_sound_though_its_chain_fits() -> None:
    """A sector that never reached the disk took the four bytes of a hash; with one slot every chain fits."""
    files = FaultyFiles()
    file = files.open_file("/i", index_file_size(1, 20), create=True)
    index = IndexFile(file, "/i", 1, 20)
    for number in range(1, 9):
        index.put(1000 + number, number * 100, 1_700_000_000_000)
    index.write_header()
    at = HEADER_SIZE + SLOT_SIZE + 5 * ENTRY_SIZE
    file.pwrite(bytes(4), at)

    again = IndexFile(file, "/i", 1, 20)
    assert again.rebuild(10_000) == 301, "what stands behind the last record kept comes again"
    assert again.count == 4
    assert again.find(1005, 8, 0, 1 << 60) == []
    assert again.find(1003, 8, 0, 1 << 60) == [300]


def test_an_entry_whose_second_half_was_lost_is_not_sound_though_nothing_came_before_it() -> None:
    """Its time would be the file's begin, and a search by time would miss it."""
    files = FaultyFiles()
    file = files.open_file("/i", index_file_size(100, 20), create=True)
    index = IndexFile(file, "/i", 100, 20)
    for number in range(1, 9):
        index.put(number, number * 100, 1_700_000_000_000 + 1000 * number)
    index.write_header()
    at = HEADER_SIZE + 100 * SLOT_SIZE + 3 * ENTRY_SIZE
    assert at % 512 == 500
    file.pwrite(bytes(8), at + 12)  # seconds and the entry before: 0 is right for that one

    again = IndexFile(file, "/i", 100, 20)
    assert again.rebuild(10_000) == 101
    assert again.find(1, 8, 0, 1 << 60) == [100]
    assert again.find(3, 8, 0, 1 << 60) == []
