"""What passes are written and run with: walks, copies, parts of modules, contexts."""
