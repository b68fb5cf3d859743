"""A service of FastAPI that takes orders, and a worker that handles them."""
