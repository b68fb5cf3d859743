"""What every feature stands on: settings, times, store and tables, how they are written, and what a feature is."""
