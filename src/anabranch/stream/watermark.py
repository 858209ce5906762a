"""The two watermarks that stand for no time: nothing is known yet, and all is over."""

START_WATERMARK = -(2**63)
"""Nothing is known yet: any tuple may still come."""
END_WATERMARK = 2**63 - 1
"""No tuple will ever come: the stream has ended."""
