"""A folder for `sys.path`: processes that a program spawns inherit that, and find kernelet too."""
