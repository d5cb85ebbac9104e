"""LSTM, GRU and RNN, one time step after the other."""
