"""Values of reads and writes: options, offsets and positions, conditions, columns, and errors in one line."""
