"""The page at `/`: a view of the engine that is served, live in a browser."""
