"""Parts of every pipeline: options, a run, streams of batches, bodies, files, pages."""
