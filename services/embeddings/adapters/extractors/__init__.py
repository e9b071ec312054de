"""Files to pages. Each module that defines ``FORMAT`` makes one format readable; adding a format is adding a module."""
