"""What a coordinator asks of sites, and when: each change in turn, and what goes on by itself."""
