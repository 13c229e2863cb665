"""Products, convolutions, pooling, normalisation, attention, losses."""
