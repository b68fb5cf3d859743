"""A name server as controller: where the records of groups stand, and who may ask for them."""
