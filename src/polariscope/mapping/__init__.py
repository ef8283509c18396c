"""Mapping: from images with labels to a map of classes, areas one may publish, and their trend over years."""
