"""Records: every measurement as a line of JSON, in files that only grow."""
