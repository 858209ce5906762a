"""Anabranch: continuous queries over many Spark sites, each with the service it must get."""

__version__ = "0.1.0"
