"""What ``serving.py`` measures with and beside: clients and servers in processes of their own."""
