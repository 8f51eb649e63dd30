"""Capacity planning: ``tecoexec --plan --qps 2000 --p99 50ms`` simulates requests on the card's cost curve, and reports
how many cards, and which batching policy, answer them in time.
"""
