"""One file per kind of peer; each registers its groups with model.group."""
