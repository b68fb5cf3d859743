"""What every pipeline is built from: options, a run, streams of batches, bodies, files, pages."""
