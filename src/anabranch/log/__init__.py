"""The log of a stream: its tuples on the disk, by position, for those who may read them again."""
