"""OPENCL: any device with an OpenCL driver, with queues and memory of its own."""
