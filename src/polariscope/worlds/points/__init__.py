"""Point worlds: data whose distribution, manifold or labels are known in closed form."""
