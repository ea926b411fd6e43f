"""What a round does, as pure decisions: state, event and time in, new state and effects out."""
