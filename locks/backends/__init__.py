"""One adapter for each coordination store."""
