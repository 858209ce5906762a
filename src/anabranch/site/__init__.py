"""A site: Spark execution of tasks, sources and sinks behind one gate."""
