"""Which version of Anabranch this is."""

VERSION = "0.1.0"
