"""What a search asks and what it answers, in pure Python: the standard library and the kernel only."""
