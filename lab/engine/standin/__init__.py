"""A stand-in engine: vLLM's command line, routes, log and counters, and faults on demand.

It goes into an image of its own (`sparkfleet/standin`), where `vllm` starts it. Only for what no
real engine does when asked: see README.md. The real engine stays on the main path.
"""
