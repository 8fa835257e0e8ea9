//! The engine model behind vLLM's HTTP, in real time, with faults.
