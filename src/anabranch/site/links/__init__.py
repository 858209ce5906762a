"""A site's links to others: following inputs, acks, who produces what."""
