"""The broker's files under `config/`: loaded at start, written after changes."""
