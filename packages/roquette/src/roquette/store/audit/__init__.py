"""Is what is derived as the log says? The cheap half for a start, the whole half for `roquette store fsck`."""
