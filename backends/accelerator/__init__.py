"""Networks on accelerators: devices with queues and memory of their own, as OPENCL and CUDA have.

A backend brings a driver that keeps the contract in ``driver.py``, and a plugin.
"""
