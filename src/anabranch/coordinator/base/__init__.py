"""What all parts of the coordinator stand on: the catalog, the sites, who changes what when."""
