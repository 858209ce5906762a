"""Hops, replays, joins, aggregates, chains, kills: measured."""
