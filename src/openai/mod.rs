//! PURE: what travels in bodies and streams: request peek and splice, SSE scanner, usage, error bodies.
