"""The protocol: keys and proofs, encryption, frames, and values as data."""
