"""A site: Spark execution of tasks, wrappers and sinks behind one gate."""
