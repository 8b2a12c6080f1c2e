"""Matrix completion: depth's bias kept by natural steps over the observed entries."""
