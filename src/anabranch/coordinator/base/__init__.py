"""The base of all parts of the coordinator: the catalog, the sites, and who changes what when."""
