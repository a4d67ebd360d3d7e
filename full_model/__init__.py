"""The full transformer, trained for real from starts that match the reduced models."""
