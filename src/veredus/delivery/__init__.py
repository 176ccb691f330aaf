"""What exactly-once means: publications and batches, and the two ends that take custody of them."""
