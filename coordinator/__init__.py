"""The coordinator: collects signed gradients, steps the model, keeps every version."""
