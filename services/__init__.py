"""The three services and the chassis they stand on. Services never import each other."""
