"""Calls: arguments checked, a request built, the backend's answer judged."""
