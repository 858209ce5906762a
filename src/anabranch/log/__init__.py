"""The log of a stream: its tuples on the disk, by position, for readers who may need them again."""
