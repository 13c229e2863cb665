"""Layouts of images: the forms there are, and the choice among them for a whole graph."""
