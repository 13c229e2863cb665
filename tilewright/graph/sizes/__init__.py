"""What is known and asked of sizes: simplification, agreement, broadcasting, axes."""
