"""Model versions, the aliases that point at them, and rollback."""
