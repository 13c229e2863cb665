"""The other side: servers with their sessions, and the tracker."""
