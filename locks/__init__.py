"""Locks, leader election and the coordination stores they stand on."""
