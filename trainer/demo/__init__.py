"""The demonstration: real processes, lying workers, a killed leader, a rollback."""
