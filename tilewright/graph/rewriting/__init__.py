"""The infrastructure of passes: walks, copies, parts of modules, contexts."""
