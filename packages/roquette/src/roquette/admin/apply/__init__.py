"""A cluster as a file says it should be: read, compared with what is, changed where nothing is lost by it."""
