"""Tables of what a broker knows of topics, groups, offsets and clients: in memory, pure; and the offsets' journal."""
