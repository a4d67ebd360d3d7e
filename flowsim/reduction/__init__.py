"""Reduced models found by machine: any network, any start."""
