"""Rules of this context in pure Python: the standard library and the kernel only."""
