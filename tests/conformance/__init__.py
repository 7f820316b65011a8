"""What judges the ledger from outside: Nova's own test suite and Nova's own schemas."""
