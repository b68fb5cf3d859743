"""Messages with an arbitrary time of delivery."""
