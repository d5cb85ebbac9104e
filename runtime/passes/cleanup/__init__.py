"""What every model wants: constants computed, what is unused or done twice taken out."""
