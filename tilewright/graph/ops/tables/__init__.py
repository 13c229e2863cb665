"""Decision trees and lookups."""
