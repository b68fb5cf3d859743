"""What is still over a limit of `tests/test_tidy.py`: each mend deletes its row, and none is added or grows."""

# Lines.
FILES = {}

# Lines, the docstring among them.
FUNCTIONS = {
    "cli/store_check.py:repair_command": 93,
}

# Parameters.
CONSTRUCTORS = {
    "client/core/send_window.py:Chunk": 9,
    "client/push_consumer.py:PushConsumer": 7,
}

# Entries of a room.
ENTRIES: dict[str, int] = {}

# Modules that import each other.
CIRCLES = [
    "roquette.testing.memory_network",
    "roquette.testing.sim_loop",
]

# Lines of source.
LINES = {"all": 68_000, "product": 51_500}
