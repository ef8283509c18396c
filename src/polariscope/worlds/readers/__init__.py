"""Readers of real files: regular files only, sizes checked before memory is taken, nothing unpickled."""
