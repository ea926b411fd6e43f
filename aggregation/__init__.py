"""Robust aggregation: arrays in, one array out, whatever a minority of the rows says."""
