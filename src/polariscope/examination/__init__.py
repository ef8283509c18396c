"""What the house can say about a subject: taken apart, compared layer by layer, or by its kernels."""
