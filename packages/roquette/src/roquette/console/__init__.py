"""The web console: pages about a cluster over `admin`, and acts with a plan. It has no logic of its own."""
