//! PURE: the engine model and a fleet in virtual time.
