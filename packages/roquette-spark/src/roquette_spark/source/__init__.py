"""Reading topics: queues and positions, batches, streams, and raw records to Arrow."""
