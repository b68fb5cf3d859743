"""What a broker knows of topics, groups, offsets and clients: tables in memory, pure; and the offsets' journal."""
