"""sparkfleet: provision a fleet of NVIDIA DGX Sparks, on pyinfra."""
