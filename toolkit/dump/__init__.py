"""Keep the values inside a model: write them, read them back, compare what two machines computed."""
