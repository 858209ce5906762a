"""What a coordinator asks of sites, and when: each change in turn, and the work that it does by
itself.
"""
