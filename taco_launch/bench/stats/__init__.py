"""Statistics of measurings: intervals, noise, drift."""
