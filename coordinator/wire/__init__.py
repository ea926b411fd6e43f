"""What travels between worker and coordinator: messages, signatures, codecs, transport."""
