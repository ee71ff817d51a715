"""DS5: offload to host memory and NVMe."""
