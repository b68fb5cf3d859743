"""`roquette doctor`: an examination collects facts of a cluster, checks make findings of them (docs/reference/doctor.md)."""
