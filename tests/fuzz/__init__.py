"""Seeded attacks on the zoo's commands: ``python -m tests.fuzz KIND --minutes N``; docs/explanation/reliability.md."""
