"""What every method of a tensor is compared with: one table a topic, one row a method."""
