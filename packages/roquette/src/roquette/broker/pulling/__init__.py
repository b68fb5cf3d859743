"""Messages go out by queue and offset: pull, filters, requests that wait."""
