"""The protocol: keys and authentication, encryption, frames, and values."""
