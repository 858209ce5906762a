"""Systems of several sites for measurements."""
