"""The monitor: false alarms and delay of its test, time of its pages, and load of its service."""
