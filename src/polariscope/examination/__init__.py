"""Examinations of a subject: take it apart, compare it layer by layer, diagnose its kernels, attack it."""
