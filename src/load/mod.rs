//! The open-loop client: pacing, sending, recording.
