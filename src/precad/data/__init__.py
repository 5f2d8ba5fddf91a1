"""Records and where they come from: image sets, splits, a user's own data sets."""
