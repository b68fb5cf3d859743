"""Floor of every feature: settings, times, store and tables, how they are written, and what a feature is."""
