//! The request's path: from a request's head to the last byte of its answer.
