"""From a config to a figure: cells, sweeps, engines, store, claims, report; no mathematics."""
