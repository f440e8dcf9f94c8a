"""Fuzzers: hostile arrays, options and files through the public API, where only `GdscoreError` may come out.

python -m tests.fuzz --seconds 60 --seed 0
"""
