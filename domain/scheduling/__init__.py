"""What a placement must satisfy, as pure rules; `commands/scheduling/` runs them over all hosts."""
