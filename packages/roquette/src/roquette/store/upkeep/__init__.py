"""Slow work beside the writer: syncs, files made ahead, deletions, full disks."""
