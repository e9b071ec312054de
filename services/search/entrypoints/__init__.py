"""Where calls come in: parse, call a use case, render."""
