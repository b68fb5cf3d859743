"""Format of a store on the disk, and the values it hands out; knows nothing of the rest of the store."""
