"""`roquette doctor`: an examination collects facts of a cluster, checks make findings of them (docs/doctor.md)."""
