"""What can be checked from files alone, whoever wrote them: signatures, rounds, fates."""
