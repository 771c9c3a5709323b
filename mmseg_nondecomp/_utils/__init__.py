"""Files and locks, progress, checks of arguments, and differences between versions of torch."""
