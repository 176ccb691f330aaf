"""The node's memory on disk: records of many streams in one series of segments, durable by the group."""
