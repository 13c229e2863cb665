"""Loop functions as text, and back."""
