"""What a broker shows of itself over HTTP: metrics, and whether it is well."""
