"""The client: devices, models on them, and the tracker."""
