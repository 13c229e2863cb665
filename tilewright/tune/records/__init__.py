"""Records: every measurement as a line of JSON, in append-only files."""
