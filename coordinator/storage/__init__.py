"""Durable objects by name: in a folder, in a bucket, or in several places that hold the same."""
