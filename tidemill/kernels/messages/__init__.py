"""What the encoders of all protocols do to a finished message: compress it."""
