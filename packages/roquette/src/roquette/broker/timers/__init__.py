"""Messages that are delivered later: by delay level, or at any time."""
