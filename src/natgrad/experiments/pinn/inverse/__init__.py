"""An unknown coefficient of the heat equation, found from data."""
