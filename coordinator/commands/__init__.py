"""Commands of the coordinator, and the root command."""
