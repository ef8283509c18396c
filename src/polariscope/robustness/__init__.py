"""How much a network stands: noise of a known size, noise that is learned against it, and training with either."""
