"""Tasks: their bodies, who runs their instances, what they cost, where they restart."""
