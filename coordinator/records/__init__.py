"""What is kept of a job: commit records, log entries, checkpoints, payloads, receipts, evidence."""
