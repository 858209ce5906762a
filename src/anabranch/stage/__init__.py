"""Stages: window aggregates of a partitioned source, in a state that its tasks share."""
