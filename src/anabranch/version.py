"""The version of Anabranch."""

VERSION = "0.1.0"
