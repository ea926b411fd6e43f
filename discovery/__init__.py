"""Who is enrolled and who is here."""
