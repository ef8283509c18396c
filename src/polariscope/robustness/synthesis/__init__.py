"""Analysis by synthesis: classifiers that explain an image by each class and answer with the best explanation."""
