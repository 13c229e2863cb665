"""The server's side: servers with their sessions, and the tracker."""
