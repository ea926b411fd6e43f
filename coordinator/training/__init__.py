"""The user's module, data and optimizer, and the training state that they amount to."""
