"""What the decoders of all formats share: columns of many records at once, and what every decoder returns."""
