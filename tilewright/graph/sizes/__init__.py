"""What is known and required of sizes: simplification, agreement, broadcasting, axes."""
