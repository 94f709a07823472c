"""What the encoders of all formats share: the bytes of many records side by side."""
