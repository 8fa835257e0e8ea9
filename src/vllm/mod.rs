//! PURE: what a vLLM server exposes: its routes and its metrics under all their names.
