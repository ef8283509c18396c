"""Views: worlds made of another world (pairs, sequences, augmented and corrupted images)."""
