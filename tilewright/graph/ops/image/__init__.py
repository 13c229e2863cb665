"""Images: resizing, sampling, regions, boxes, files."""
