"""How one coordinator comes to have what another has: donors, standbys, recovery."""
